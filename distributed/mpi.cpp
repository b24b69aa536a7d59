// The Python module ortmodule._mpi: a c10d backend over MPI's non-blocking calls, for tensors on
// the CPU. mpi.py registers it as `ort_mpi`.
#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <map>

#include "distributed/mpi_flight.h"

namespace ort::mpi {

using namespace c10d;
using at::Tensor;

// What moves elements asks for their size alone, so all dtypes go.
MPI_Datatype element(const Tensor& t) {
  const std::array types{MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
                         MPI_C_DOUBLE_COMPLEX};
  return types.at(std::countr_zero(static_cast<size_t>(t.element_size())));
}

// What MPI reduces a tensor with. A sum of bools is `any`.
std::pair<MPI_Datatype, MPI_Op> reducing(const Tensor& t, const ReduceOp& by) {
  static const std::map<at::ScalarType, MPI_Datatype> types{
      {at::kByte, MPI_UINT8_T}, {at::kChar, MPI_INT8_T},  {at::kShort, MPI_INT16_T},
      {at::kInt, MPI_INT32_T},  {at::kLong, MPI_INT64_T}, {at::kBool, MPI_UINT8_T},
      {at::kFloat, MPI_FLOAT},  {at::kDouble, MPI_DOUBLE}};
  const std::array ops{MPI_SUM, MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};
  const auto type = t.scalar_type();
  const bool floats = by <= ReduceOp::MAX, others = by != ReduceOp::AVG && by <= ReduceOp::BXOR;
  require(types.contains(type) && (t.is_floating_point() ? floats : others),
          "no such reduction of ", type);
  return {types.at(type), type == at::kBool && by == ReduceOp::SUM ? MPI_MAX : ops[by]};
}

// Contiguous, and not in the memory of others, as MPI asks: the tensor itself where it can be.
// Halves are reduced as float32, and rounded once.
Tensor dense(const Tensor& t, const Tensors& others, bool reduced) {
  if (!t.defined()) return t;
  require(t.is_cpu() && t.layout() == at::kStrided, "takes dense tensors on the CPU, not ",
          t.layout(), " ", t.scalar_type(), " on ", t.device());
  require(t.numel() <= INT_MAX, t.numel(), " elements in one op, and MPI counts to 2^31 - 1");
  const auto shared = [&](const Tensor& other) { return other.defined() && t.is_alias_of(other); };
  const bool half = t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
  if (reduced && half) return t.contiguous().to(at::kFloat);
  return std::ranges::any_of(others, shared) ? t.clone(at::MemoryFormat::Contiguous)
                                             : t.contiguous();
}

void check_parts(const Tensor& all, const Tensor& part, int parts) {
  require(all.scalar_type() == part.scalar_type() && all.numel() == part.numel() * parts,
          all.scalar_type(), all.sizes(), " is not ", parts, " times ", part.scalar_type(),
          part.sizes());
}

class Group : public Channel {
  using Ended = c10::intrusive_ptr<Work>;
  using Lists = std::vector<Tensors>;
  using Request = MPI_Request*;

 public:
  Group(const std::vector<int>& ranks, int rank, int tag, Milliseconds timeout)
      : Channel(rank, static_cast<int>(ranks.size())), timeout_(timeout) {
    const std::lock_guard lock(progress.mutex);
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world));
    check(MPI_Group_incl(world, size_, ranks.data(), &members));
    // Collective over the members alone, as c10d asks nobody else. Never freed: that is
    // collective too, and Python destroys in any order.
    check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm_));
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    check(MPI_Comm_dup(comm_, &messages_));
  }

  const std::string getBackendName() const override { return "ort_mpi"; }
  void setTimeout(Milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return started; }

  Ended broadcast(Tensors& ts, const BroadcastOptions& o) override {
    return start(OpType::BROADCAST, o, {}, ts, [&](int, auto&, auto& t, Request r) {
      return MPI_Ibcast(t.data_ptr(), t.numel(), element(t), o.rootRank, comm_, r);
    });
  }
  Ended allreduce(Tensors& ts, const AllreduceOptions& o) override {
    return start(OpType::ALLREDUCE, o, {}, ts, [&](int, auto&, auto& t, Request r) {
      const auto [type, op] = reducing(t, o.reduceOp);
      return MPI_Iallreduce(MPI_IN_PLACE, t.data_ptr(), t.numel(), type, op, comm_, r);
    });
  }
  Ended allreduce_coalesced(Tensors& ts, const AllreduceCoalescedOptions& o) override {
    return allreduce(ts, o);
  }

  Ended _allgather_base(Tensor& out, Tensor& in, const AllgatherOptions& o) override {
    Tensors outs{out}, ins{in};
    return allgather_into_tensor_coalesced(outs, ins, o);
  }
  Ended allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const AllgatherOptions& o) override {
    return start(OpType::_ALLGATHER_BASE, o, ins, outs, [&](int, auto& in, auto& out, Request r) {
      check_parts(out, in, size_);
      return MPI_Iallgather(in.data_ptr(), in.numel(), element(in), out.data_ptr(), in.numel(),
                            element(in), comm_, r);
    });
  }
  Ended _reduce_scatter_base(Tensor& out, Tensor& in, const ReduceScatterOptions& o) override {
    Tensors outs{out}, ins{in};
    return reduce_scatter_tensor_coalesced(outs, ins, o);
  }
  Ended reduce_scatter_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const ReduceScatterOptions& o) override {
    return start(
        OpType::_REDUCE_SCATTER_BASE, o, ins, outs, [&](int, auto& in, auto& out, Request r) {
          check_parts(in, out, size_);
          const auto [type, op] = reducing(out, o.reduceOp);
          void* to = out.data_ptr();
          return MPI_Ireduce_scatter_block(in.data_ptr(), to, out.numel(), type, op, comm_, r);
        });
  }

  Ended allgather(Lists& outs, Tensors& ins, const AllgatherOptions& o) override {
    const Tensors in(size_, dense(ins.at(0), outs.at(0), false));
    return exchange(OpType::ALLGATHER, o, in, outs[0]);
  }
  Ended gather(Lists& outs, Tensors& ins, const GatherOptions& o) override {
    Tensors in(size_), none(size_);
    in[o.rootRank] = ins.at(0);
    return exchange(OpType::GATHER, o, in, rank_ == o.rootRank ? outs.at(0) : none);
  }
  Ended scatter(Tensors& outs, Lists& ins, const ScatterOptions& o) override {
    Tensors out(size_), none(size_);
    out[o.rootRank] = outs.at(0);
    return exchange(OpType::SCATTER, o, rank_ == o.rootRank ? ins.at(0) : none, out);
  }
  Ended alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_rows,
                      std::vector<int64_t>& in_rows, const AllToAllOptions& o) override {
    const auto parts = [&](const Tensor& t, const std::vector<int64_t>& rows) {
      checkSplitSizes(rows, t, size_);
      return rows.empty() ? t.tensor_split(size_) : t.split_with_sizes(rows);
    };
    return exchange(OpType::ALLTOALL_BASE, o, parts(in, in_rows), parts(out, out_rows), {out});
  }
  Ended send(Tensors& ts, int to, int tag) override {
    return start(OpType::SEND, AllToAllOptions(), ts, {}, [&](int, auto& t, auto&, Request r) {
      return MPI_Isend(t.data_ptr(), t.numel(), element(t), to, tag, messages_, r);
    });
  }
  Ended recv(Tensors& ts, int from, int tag) override {
    return start(OpType::RECV, AllToAllOptions(), {}, ts, [&](int, auto&, auto& t, Request r) {
      return MPI_Irecv(t.data_ptr(), t.numel(), element(t), from, tag, messages_, r);
    });
  }
  Ended recvAnysource(Tensors& ts, int tag) override { return recv(ts, MPI_ANY_SOURCE, tag); }
  Ended barrier(const BarrierOptions& o) override {
    return start(OpType::BARRIER, o, {}, {},
                 [&](int, auto&, auto&, Request r) { return MPI_Ibarrier(comm_, r); });
  }

 private:
  // A call for each of ins, outs, or both; it may begin two requests.
  template <class Options, class Call>
  Ended start(OpType op, const Options& o, const Tensors& ins, const Tensors& outs, Call call,
              const Tensors& results = {}) {
    const auto self = c10::intrusive_ptr<Group>::unsafe_reclaim_from_nonowning(this);
    const auto flight = c10::make_intrusive<Flight>(self, op);
    flight->timeout = o.timeout.count() > 0 ? o.timeout : timeout_;
    flight->deadline = Clock::now() + flight->timeout;
    const bool reduces = op == OpType::ALLREDUCE || op == OpType::_REDUCE_SCATTER_BASE;
    if constexpr (requires { o.reduceOp; }) flight->average = o.reduceOp == ReduceOp::AVG;
    for (const Tensor& t : ins) flight->from.push_back(dense(t, outs, reduces));
    for (const Tensor& t : outs) flight->to.push_back(dense(t, {}, reduces));
    flight->outs = outs, flight->results = results.empty() ? outs : results;
    std::erase_if(flight->results, [](const Tensor& t) { return !t.defined(); });
    const size_t calls = std::max({ins.size(), outs.size(), size_t{1}});
    flight->from.resize(calls), flight->to.resize(calls);
    flight->requests.resize(2 * calls, MPI_REQUEST_NULL), flight->statuses.resize(2 * calls);
    progress.start(flight, [&] {
      for (size_t i = 0; i < calls; ++i)
        check(call(i, flight->from[i], flight->to[i], &flight->requests[2 * i]));
    });
    return flight;
  }

  // A message to each rank and from each, where there is a tensor.
  template <class Options>
  Ended exchange(OpType op, const Options& o, const Tensors& ins, const Tensors& outs,
                 const Tensors& results = {}) {
    require(std::ssize(ins) == size_ && std::ssize(outs) == size_, "takes a tensor for each rank");
    if (ins[rank_].defined() && outs[rank_].defined()) check_parts(outs[rank_], ins[rank_], 1);
    const auto call = [&](int i, auto& in, auto& to, Request r) {
      if (to.defined()) check(MPI_Irecv(to.data_ptr(), to.numel(), element(to), i, 0, comm_, r++));
      if (!in.defined()) return MPI_SUCCESS;
      return MPI_Isend(in.data_ptr(), in.numel(), element(in), i, 0, comm_, r);
    };
    return start(op, o, ins, outs, call, results);
  }

  MPI_Comm comm_ = MPI_COMM_NULL, messages_ = MPI_COMM_NULL;  // messages: of the caller's tags
  Milliseconds timeout_;
};

c10::intrusive_ptr<Backend> group(std::vector<int> ranks, int rank, int tag, Milliseconds timeout) {
  return c10::make_intrusive<Group>(ranks, rank, tag, timeout);
}

}  // namespace ort::mpi

PYBIND11_MODULE(_mpi, m) {
  using namespace ort::mpi;
  using torch::wrap_pybind_function_no_gil;
  m.def("world", wrap_pybind_function_no_gil([] { return progress.init(); }));
  m.def("leave", wrap_pybind_function_no_gil([](bool orderly) { progress.leave(orderly); }));
  m.def("group", wrap_pybind_function_no_gil(group));
}
