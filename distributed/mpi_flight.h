// An op of MPI in flight, and the threads that see all of a process through. For mpi.cpp alone.
#pragma once

#include <ATen/ATen.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <deque>
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
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text.data(), &length);
  require(code == MPI_SUCCESS, text.c_str());
}

// What a group's ops know of it. `started` and `broken`, which says why no further one may start,
// change under the lock of Progress.
struct Channel : c10d::Backend {
  using Backend::Backend;
  std::string broken;
  uint64_t started = 0;
};

struct Flight : c10d::Work {
  Flight(c10::intrusive_ptr<Channel> channel, c10d::OpType op)
      : Work(channel->getRank(), op, ("ort_mpi:" + opTypeToString(op)).c_str()),
        on(std::move(channel)) {}

  int sourceRank() const override { return statuses[0].MPI_SOURCE; }
  Tensors result() override { return results; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future; }

  // An error of f's is the op's. What other ranks make of the group's next collective is not known
  // after one that failed on its way; while a request is open MPI may still write to the tensors.
  template <class F>
  void attempt(F f) try {
    f();
  } catch (const c10::Error& e) {
    std::string what = e.what_without_backtrace() + ("; " + opTypeToString(opType_));
    for (const at::Tensor& t : results.empty() ? from : results)
      if (t.defined()) what += c10::str(" ", t.scalar_type(), t.sizes());
    what += c10::str(", op ", number, " of group ", on->getGroupUid(), ", rank ", rank_, " of ",
                     on->getSize());
    error = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, 0}, what));
    const bool open = std::ranges::count(requests, MPI_REQUEST_NULL) < std::ssize(requests);
    if (open || (begun && !isP2POp(opType_))) on->broken = what;
    if (open) kept.push_back(c10::intrusive_ptr<Flight>::unsafe_reclaim_from_nonowning(this));
  }

  bool over() {
    attempt([this] {
      for (int ended = 1; ended && done < requests.size(); done += ended)
        check(MPI_Test(&requests[done], &ended, &statuses[done]));
      require(done == requests.size() || Clock::now() < deadline, "not done in ", timeout.count(),
              " ms, as a rank is slow or did not come");
    });
    return error || done == requests.size();
  }

  // What came goes where the caller has it.
  void complete() {
    if (!error)
      attempt([this] {
        const at::AutoDispatchBelowADInplaceOrView no_history;
        int bytes = 0;
        const bool took = opType_ == c10d::OpType::RECV;
        if (took) MPI_Get_elements(&statuses[0], MPI_BYTE, &bytes);
        require(!took || bytes == static_cast<int64_t>(to[0].nbytes()), bytes, " bytes came");
        for (size_t i = 0; i < outs.size(); ++i) {
          if (average) to[i].div_(on->getSize());
          if (!to[i].is_same(outs[i])) outs[i].copy_(to[i]);
        }
      });
    error ? future->setError(error) : future->markCompleted(results);
    finish(error);
  }

  const c10::intrusive_ptr<Channel> on;
  Milliseconds timeout;
  Clock::time_point deadline;
  Tensors from, to;       // what MPI reads and writes; undefined where nothing
  Tensors outs, results;  // the caller's: of each of `to`, and what a future gives
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  size_t number = 0, done = 0;  // of the group's ops; of requests
  bool average = false, begun = false;
  std::exception_ptr error;
  const c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  static inline std::vector<c10::intrusive_ptr<Flight>> kept;  // those that failed, for MPI
};

// Every call of MPI is under one lock, so MPI_THREAD_SERIALIZED is enough; MULTIPLE is asked for,
// as others in the process may call MPI too.
struct Progress {
  // MPI_Init, where nobody has called it; rank and size of the world.
  std::pair<int, int> init() {
    const std::lock_guard lock(mutex);
    int ready = 0, level = 0, rank = 0, size = 0;
    require(!left, "MPI has ended in this process");
    MPI_Initialized(&ready);
    if (!ready) check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    check(MPI_Query_thread(&level));
    require(level >= MPI_THREAD_SERIALIZED, "MPI was begun for calls from one thread alone");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size));
    ours |= !ready;
    return {rank, size};
  }

  // `call` begins the flight's requests.
  template <class F>
  void start(const c10::intrusive_ptr<Flight>& flight, F call) {
    const std::lock_guard lock(mutex);
    require(!left, "MPI has ended in this process");
    require(flight->on->broken.empty(), "the group is closed: ", flight->on->broken);
    flight->number = ++flight->on->started;
    flight->attempt(call);
    if (flight->error) std::rethrow_exception(flight->error);
    flight->begun = true;
    waiting.push_back(flight), ++in_flight;
    waiting.size() > spare ? std::thread(&Progress::run, this).detach() : turn.notify_one();
  }

  // At exit. MPI_Finalize waits for all ranks; where one is stuck this process goes without, which
  // makes the launcher end the job.
  void leave(bool orderly) {
    std::unique_lock lock(mutex);
    idle.wait(lock, [&] { return !orderly || in_flight == 0; });
    if (orderly && ours && !left && Flight::kept.empty()) check(MPI_Finalize());
    left = true;
    turn.notify_all();
  }

  // A thread sees one flight through after the other, and there are as many as flights at a time:
  // what completes may call functions of the caller's, which may wait for another.
  void run() {
    for (std::unique_lock lock(mutex);; --in_flight, idle.notify_all()) {
      ++spare;
      turn.wait(lock, [this] { return left || !waiting.empty(); });
      --spare;
      if (left) return;
      const auto flight = waiting.front();
      waiting.pop_front();
      // MPI has no call that sleeps: others may run at first, then for longer and longer.
      for (size_t polls = 0; !flight->over(); ++polls) {
        const std::chrono::microseconds pause(std::min<size_t>(polls * in_flight / 200, 50));
        lock.unlock();
        pause.count() == 0 ? std::this_thread::yield() : std::this_thread::sleep_for(pause);
        lock.lock();
        if (left) return;
      }
      lock.unlock();
      flight->complete();
      lock.lock();
    }
  }

  std::mutex mutex;
  std::condition_variable turn, idle;
  std::deque<c10::intrusive_ptr<Flight>> waiting;  // for a thread
  size_t in_flight = 0, spare = 0;
  bool ours = false, left = false;
};

inline Progress& progress = *new Progress;  // its threads outlive main

}  // namespace ort::mpi
