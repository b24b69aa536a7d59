// An op of MPI in flight, and the threads that see all of a process through. For mpi.cpp alone.
#pragma once

#include <ATen/ATen.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <sys/prctl.h>
#include <condition_variable>
#include <functional>
#include <thread>

namespace ort::mpi {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

template <class... Words>
void require(bool holds, const Words&... words) {
  if (!holds) C10_THROW_ERROR(DistBackendError, c10::str("[ort_mpi] ", words...));
}

inline void check(int code) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  require(false, text.c_str());
}

// What a group's ops know of it. `started` and `broken`, which says why no further one may start,
// change under the lock of Progress.
struct Channel : c10d::Backend {
  using Backend::Backend;
  std::string name, broken;
  uint64_t started = 0;
};

struct Task {
  c10d::OpType op;
  Tensors from, to;  // what each request reads and writes; undefined where nothing
  std::function<int(const at::Tensor& from, const at::Tensor& to, MPI_Request*)> call;
  Tensors parts, results;  // of `to`, and where they are copied unless they are the same
  int divisor = 1;
  Milliseconds timeout{};
};

class Flight : public c10d::Work {
 public:
  Flight(c10::intrusive_ptr<Channel> channel, Task task)
      : Work(channel->getRank(), task.op, ("ort_mpi:" + opTypeToString(task.op)).c_str()),
        channel_(std::move(channel)),
        task_(std::move(task)),
        requests_(task_.to.size(), MPI_REQUEST_NULL),
        statuses_(task_.to.size()) {}

  int sourceRank() const override { return statuses_[0].MPI_SOURCE; }
  Tensors result() override { return task_.results; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  friend class Progress;

  // An error of f's is the op's. What other ranks make of the group's next collective is not known
  // after one that failed on its way.
  template <class F>
  void attempt(F f) try {
    f();
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace() + ("; " + opTypeToString(opType_));
    for (const at::Tensor& t : task_.results.empty() ? task_.from : task_.results)
      if (t.defined()) what += c10::str(" ", t.scalar_type(), t.sizes());
    what += c10::str(", op ", number_, " of group ", channel_->name, ", rank ", rank_, " of ",
                     channel_->getSize());
    error_ = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, 0}, what));
    for (const MPI_Request request : requests_) stuck_ |= request != MPI_REQUEST_NULL;
    if (stuck_ || (begun_ && !isP2POp(opType_))) channel_->broken = what;
  }

  void start() {
    number_ = ++channel_->started;
    deadline_ = Clock::now() + task_.timeout;
    attempt([this] {
      for (size_t i = 0; i < requests_.size(); ++i)
        check(task_.call(task_.from[i], task_.to[i], &requests_[i]));
      begun_ = true;
    });
  }

  bool over() {
    int done = 0;
    attempt([&] {
      const int count = static_cast<int>(requests_.size());
      const int code = MPI_Testall(count, requests_.data(), &done, statuses_.data());
      for (const MPI_Status& status : statuses_)
        if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_ERR_PENDING)
          check(status.MPI_ERROR);
      check(code);
      require(done || Clock::now() < deadline_, "not done in ", task_.timeout.count(),
              " ms, as a rank is slow or did not come");
    });
    return done || error_;
  }

  void put() {
    const at::AutoDispatchBelowADInplaceOrView no_history;
    if (opType_ == c10d::OpType::RECV) {
      int bytes = 0;
      MPI_Get_elements(&statuses_[0], MPI_BYTE, &bytes);
      require(static_cast<size_t>(bytes) == task_.to[0].nbytes(), bytes, " bytes came");
    }
    for (size_t i = 0; i < task_.results.size(); ++i) {
      if (task_.divisor > 1) task_.parts[i].div_(task_.divisor);
      if (!task_.parts[i].is_same(task_.results[i])) task_.results[i].copy_(task_.parts[i]);
    }
  }

  void complete() {
    if (!error_) attempt([this] { put(); });
    error_ ? future_->setError(error_) : future_->markCompleted(task_.results);
    finish(error_);
  }

  const c10::intrusive_ptr<Channel> channel_;
  const Task task_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  uint64_t number_ = 0;
  Clock::time_point deadline_;
  std::exception_ptr error_;
  bool begun_ = false, stuck_ = false;  // stuck: MPI may still write to the tensors
};

// Every call of MPI is under one lock, so MPI_THREAD_SERIALIZED is enough; MULTIPLE is asked for,
// as others in the process may call MPI too.
class Progress {
 public:
  static Progress& get() {
    static auto* progress = new Progress;  // its threads outlive main
    return *progress;
  }

  // MPI_Init, where nobody has called it; rank and size of the world.
  std::pair<int, int> init() {
    const std::lock_guard lock(mutex_);
    int ready = 0, level = 0, rank = 0, size = 0;
    require(!left_, "MPI has ended in this process");
    MPI_Initialized(&ready);
    if (!ready) check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    check(MPI_Query_thread(&level));
    require(level >= MPI_THREAD_SERIALIZED, "MPI was begun for calls from one thread alone");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (!running_) std::thread(&Progress::run, this).detach();
    running_ = true, ours_ |= !ready;
    return {rank, size};
  }

  template <class F>
  void locked(F f) {
    const std::lock_guard lock(mutex_);
    require(running_, "MPI has not begun, or has ended, in this process");
    f();
  }

  void start(const c10::intrusive_ptr<Flight>& flight) {
    locked([&] {
      require(flight->channel_->broken.empty(), "the group is closed: ", flight->channel_->broken);
      flight->start();
      if (flight->stuck_ && flight->error_) stuck_.push_back(flight);
      if (flight->error_) std::rethrow_exception(flight->error_);
      ++in_flight_;
      pending_.push_back(flight);
      turn_.notify_one();
    });
  }

  // At exit. MPI_Finalize waits for all ranks; where one is stuck this process goes without, which
  // makes the launcher end the job.
  void leave(bool orderly) {
    std::unique_lock lock(mutex_);
    if (!running_) return;
    idle_.wait(lock, [&] { return !orderly || in_flight_ == 0; });
    left_ = true, running_ = false;
    turn_.notify_all();
    if (orderly && ours_ && stuck_.empty()) check(MPI_Finalize());
  }

 private:
  using Flights = std::vector<c10::intrusive_ptr<Flight>>;

  Flights poll() {
    Flights over, rest;
    for (auto& flight : std::exchange(pending_, {}))
      (flight->over() ? over : rest).push_back(std::move(flight));
    for (const auto& flight : over)
      if (flight->stuck_) stuck_.push_back(flight);
    pending_ = std::move(rest);
    return over;
  }

  // Who has the lead polls. What completes may call functions of the caller's, and these may wait
  // for another op: so the lead is given away before, to a new thread where none is spare.
  void run() {
    prctl(PR_SET_TIMERSLACK, 1000);
    for (std::unique_lock lock(mutex_);;) {
      ++spare_;
      turn_.wait(lock, [this] { return left_ || (!led_ && !pending_.empty()); });
      --spare_, led_ = true;
      Flights over;
      for (int polls = 0; !left_ && (over = poll()).empty(); ++polls) {
        lock.unlock();
        // MPI has no call that sleeps: at first others may run, then the core is given back for
        // longer and longer.
        const std::chrono::microseconds pause(std::min(polls / 100, 50));
        polls < 200 ? std::this_thread::yield() : std::this_thread::sleep_for(pause);
        lock.lock();
      }
      if (left_) return;
      led_ = false;
      spare_ ? turn_.notify_one() : std::thread(&Progress::run, this).detach();
      lock.unlock();
      for (const auto& flight : over) flight->complete();
      lock.lock();
      in_flight_ -= over.size();
      idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable turn_, idle_;
  Flights pending_, stuck_;
  size_t in_flight_ = 0, spare_ = 0;
  bool led_ = false, running_ = false, ours_ = false, left_ = false;
};

}  // namespace ort::mpi
