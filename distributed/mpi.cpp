// The Python module ortmodule._mpi: a c10d backend over MPI's non-blocking calls, for tensors on
// the CPU. mpi.py registers it as `ort_mpi`.
#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>
#include <map>

#include "distributed/mpi_flight.h"

namespace py = pybind11;

namespace ort::mpi {
namespace {

using namespace c10d;
using at::Tensor;

int count(int64_t elements) {
  require(elements <= INT_MAX, elements, " elements in one op, and MPI counts to 2^31 - 1");
  return static_cast<int>(elements);
}
int count(const Tensor& t) {
  return count(t.numel());
}

// What moves elements asks for their size alone, so all dtypes go.
MPI_Datatype element(const Tensor& t) {
  const std::array types{MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T,
                         MPI_C_DOUBLE_COMPLEX};
  return types.at(std::countr_zero(static_cast<size_t>(t.element_size())));
}

using Ops = std::array<MPI_Op, 8>;  // SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR

// Two halves are combined in float32 and rounded to the nearest, ties to even: W - 1 roundings, in
// the order in which MPI combines.
template <at::ScalarType kType, auto kInto>
MPI_Op combining() {
  const auto combine = [](void* in, void* to, int* size, MPI_Datatype*) {
    const at::AutoDispatchBelowADInplaceOrView no_history;
    kInto(at::from_blob(to, {*size}, kType), at::from_blob(in, {*size}, kType));
  };
  MPI_Op op = MPI_OP_NULL;
  check(MPI_Op_create(combine, 1, &op));
  return op;
}

template <at::ScalarType kType>
Ops of_halves() {
  const MPI_Op sum = combining<kType, [](Tensor to, const Tensor& t) { to.add_(t); }>();
  return {sum,
          sum,
          combining<kType, [](Tensor to, const Tensor& t) { to.mul_(t); }>(),
          combining<kType, [](Tensor to, const Tensor& t) { at::minimum_out(to, to, t); }>(),
          combining<kType, [](Tensor to, const Tensor& t) { at::maximum_out(to, to, t); }>(),
          MPI_OP_NULL,
          MPI_OP_NULL,
          MPI_OP_NULL};
}

// What MPI reduces a tensor with; called under the lock. A sum of bools is `any`.
std::pair<MPI_Datatype, MPI_Op> reducing(const Tensor& t, const ReduceOp& by) {
  const MPI_Op none = MPI_OP_NULL;
  const Ops floats{MPI_SUM, MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, none, none, none};
  const Ops ints{MPI_SUM, none, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};
  const Ops bools{MPI_LOR, none, MPI_LAND, MPI_LAND, MPI_LOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  static const std::map<at::ScalarType, std::pair<MPI_Datatype, Ops>> all{
      {at::kHalf, {MPI_UINT16_T, of_halves<at::kHalf>()}},
      {at::kBFloat16, {MPI_UINT16_T, of_halves<at::kBFloat16>()}},
      {at::kFloat, {MPI_FLOAT, floats}},
      {at::kDouble, {MPI_DOUBLE, floats}},
      {at::kChar, {MPI_INT8_T, ints}},
      {at::kShort, {MPI_INT16_T, ints}},
      {at::kInt, {MPI_INT32_T, ints}},
      {at::kLong, {MPI_INT64_T, ints}},
      {at::kByte, {MPI_UINT8_T, ints}},
      {at::kBool, {MPI_UINT8_T, bools}}};
  const auto found = all.find(t.scalar_type());
  const bool known = found != all.end() && by < ReduceOp::PREMUL_SUM;
  const MPI_Op op = known ? found->second.second[by] : none;
  require(op != none, "no such reduction of ", t.scalar_type());
  return {found->second.first, op};
}

// Contiguous, and not in the memory of `other`, as MPI asks: the tensor itself where it can be.
Tensor dense(const Tensor& t, const Tensor& other = {}) {
  require(t.is_cpu() && t.layout() == at::kStrided, "takes dense tensors on the CPU, not ",
          t.toString(), " on ", t.device());
  count(t);  // before a copy is made
  const bool shared = other.defined() && t.is_alias_of(other);
  return shared ? t.clone(at::MemoryFormat::Contiguous) : t.contiguous();
}

template <class T>
const T& one(const std::vector<T>& all) {
  require(all.size() == 1, "takes one tensor of a rank, not ", all.size());
  return all[0];
}

// What a rank sends to each rank or takes from each: parts of one buffer.
struct Side {
  std::vector<int> counts, offsets;
  Tensor flat;
  Tensors parts, wholes;

  // All of t with the ranks from first to last.
  Side(int size, const Tensor& t, int first, int last)
      : counts(size), offsets(size), flat(dense(t)), parts{flat}, wholes{t} {
    std::fill(counts.begin() + first, counts.begin() + last, count(t));
  }

  // Rows of t; as many with each rank where `rows` is empty.
  Side(int size, const Tensor& t, const std::vector<int64_t>& rows) : Side(size, t, 0, size) {
    checkSplitSizes(rows, t, size);
    computeLengthsAndOffsets(rows, t, &counts, &offsets);
  }

  // A tensor a rank, of any sizes; `filled` with its elements.
  Side(int size, const Tensors& ts, bool filled) : counts(size), offsets(size), wholes(ts) {
    const at::AutoDispatchBelowADInplaceOrView no_history;
    require(ts.size() == counts.size(), ts.size(), " tensors for ", size, " ranks");
    int64_t total = 0;
    for (int i = 0; i < size; total += counts[i++])
      offsets[i] = count(total), counts[i] = count(dense(ts[i]));
    flat = at::empty({count(total)}, ts[0].options());
    for (int i = 0; i < size; ++i) {
      parts.push_back(flat.narrow(0, offsets[i], counts[i]).view(ts[i].sizes()));
      if (filled) parts[i].copy_(ts[i]);
    }
  }
};

class Group : public Channel {
  using Ended = c10::intrusive_ptr<Work>;
  using Lists = std::vector<Tensors>;
  using Request = MPI_Request*;

 public:
  Group(const std::vector<int>& ranks, int rank, int tag, Milliseconds timeout, std::string text)
      : Channel(rank, static_cast<int>(ranks.size())), timeout_(timeout) {
    name = std::move(text);
    Progress::get().locked([&] {
      MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
      check(MPI_Comm_group(MPI_COMM_WORLD, &world));
      check(MPI_Group_incl(world, size_, ranks.data(), &members));
      // Collective over the members alone, as c10d asks nobody else. Never freed: that is
      // collective too, and Python destroys in any order.
      check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm_));
      check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    });
  }

  const std::string getBackendName() const override { return "ort_mpi"; }
  void setTimeout(Milliseconds timeout) override { timeout_ = timeout; }
  // TORCH_DISTRIBUTED_DEBUG=DETAIL compares these, with sizes and dtypes.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return started; }

  Ended broadcast(Tensors& ts, const BroadcastOptions& o) override {
    return start(OpType::BROADCAST, o.timeout, {}, {}, ts, [=, this](auto&, auto& t, Request r) {
      return MPI_Ibcast(t.data_ptr(), count(t), element(t), o.rootRank, comm_, r);
    });
  }
  Ended allreduce(Tensors& ts, const AllreduceOptions& o) override {
    return start(OpType::ALLREDUCE, o.timeout, o.reduceOp, {}, ts,
                 [=, this](auto&, auto& t, Request r) {
                   const auto [type, op] = reducing(t, o.reduceOp);
                   return MPI_Iallreduce(MPI_IN_PLACE, t.data_ptr(), count(t), type, op, comm_, r);
                 });
  }
  Ended allreduce_coalesced(Tensors& ts, const AllreduceCoalescedOptions& o) override {
    return allreduce(ts, o);
  }
  Ended reduce(Tensors& ts, const ReduceOptions& o) override {
    const bool root = rank_ == o.rootRank;
    const ReduceOp by = root ? o.reduceOp : ReduceOp();
    return start(OpType::REDUCE, o.timeout, by, {}, ts, [=, this](auto&, auto& t, Request r) {
      const auto [type, op] = reducing(t, o.reduceOp);
      void* to = t.data_ptr();
      return MPI_Ireduce(root ? MPI_IN_PLACE : to, to, count(t), type, op, o.rootRank, comm_, r);
    });
  }

  Ended allgather(Lists& outs, Tensors& ins, const AllgatherOptions& o) override {
    return exchange(OpType::ALLGATHER, o.timeout, {size_, one(ins), 0, size_},
                    {size_, one(outs), false});
  }
  Ended gather(Lists& outs, Tensors& ins, const GatherOptions& o) override {
    const int root = o.rootRank;
    const Side in(size_, one(ins), root, root + 1);
    const Side none(size_, in.flat.new_empty({0}), 0, 0);
    const Side out = rank_ == root ? Side(size_, one(outs), false) : none;
    return exchange(OpType::GATHER, o.timeout, in, out);
  }
  Ended scatter(Tensors& outs, Lists& ins, const ScatterOptions& o) override {
    const int root = o.rootRank;
    const Side out(size_, one(outs), root, root + 1);
    const Side none(size_, out.flat.new_empty({0}), 0, 0);
    const Side in = rank_ == root ? Side(size_, one(ins), true) : none;
    return exchange(OpType::SCATTER, o.timeout, in, out);
  }
  Ended alltoall(Tensors& outs, Tensors& ins, const AllToAllOptions& o) override {
    return exchange(OpType::ALLTOALL, o.timeout, {size_, ins, true}, {size_, outs, false});
  }
  Ended alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_rows,
                      std::vector<int64_t>& in_rows, const AllToAllOptions& o) override {
    const Side from(size_, dense(in, out), in_rows);
    return exchange(OpType::ALLTOALL_BASE, o.timeout, from, {size_, out, out_rows});
  }

  Ended _allgather_base(Tensor& out, Tensor& in, const AllgatherOptions& o) override {
    return gather_parts({out}, {in}, o);
  }
  Ended allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const AllgatherOptions& o) override {
    return gather_parts(outs, ins, o);
  }
  Ended _reduce_scatter_base(Tensor& out, Tensor& in, const ReduceScatterOptions& o) override {
    return reduce_parts({out}, {in}, o);
  }
  Ended reduce_scatter_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const ReduceScatterOptions& o) override {
    return reduce_parts(outs, ins, o);
  }
  Ended reduce_scatter(Tensors& outs, Lists& ins, const ReduceScatterOptions& o) override {
    for (const Tensor& t : one(ins)) require(t.numel() == one(outs).numel(), "takes equal parts");
    return reduce_parts(outs, {Side(size_, one(ins), true).flat}, o);
  }

  Ended send(Tensors& ts, int to, int tag) override {
    return start(OpType::SEND, kUnsetTimeout, {}, {one(ts)}, {},
                 [=, this](auto& t, auto&, Request r) {
                   return MPI_Isend(t.data_ptr(), count(t), element(t), to, tag, comm_, r);
                 });
  }
  Ended recv(Tensors& ts, int from, int tag) override {
    return start(OpType::RECV, kUnsetTimeout, {}, {}, {one(ts)},
                 [=, this](auto&, auto& t, Request r) {
                   return MPI_Irecv(t.data_ptr(), count(t), element(t), from, tag, comm_, r);
                 });
  }
  Ended recvAnysource(Tensors& ts, int tag) override { return recv(ts, MPI_ANY_SOURCE, tag); }
  Ended barrier(const BarrierOptions& o) override {
    return start(OpType::BARRIER, o.timeout, {}, {}, {},
                 [this](auto&, auto&, Request r) { return MPI_Ibarrier(comm_, r); });
  }

 private:
  // `all` has a part for each rank.
  void check_parts(const Tensor& all, const Tensor& part) const {
    require(all.scalar_type() == part.scalar_type() && all.numel() == part.numel() * size_,
            all.scalar_type(), all.sizes(), " is not ", size_, " times ", part.scalar_type(),
            part.sizes());
  }

  Ended gather_parts(const Tensors& outs, const Tensors& ins, const AllgatherOptions& o) {
    return start(OpType::_ALLGATHER_BASE, o.timeout, {}, ins, outs,
                 [this](auto& in, auto& out, Request r) {
                   check_parts(out, in);
                   return MPI_Iallgather(in.data_ptr(), count(in), element(in), out.data_ptr(),
                                         count(in), element(in), comm_, r);
                 });
  }

  Ended reduce_parts(const Tensors& outs, const Tensors& ins, const ReduceScatterOptions& o) {
    const auto call = [=, this](const Tensor& in, const Tensor& out, Request r) {
      check_parts(in, out);
      const auto [type, op] = reducing(out, o.reduceOp);
      return MPI_Ireduce_scatter_block(in.data_ptr(), out.data_ptr(), count(out), type, op, comm_,
                                       r);
    };
    return start(OpType::_REDUCE_SCATTER_BASE, o.timeout, o.reduceOp, ins, outs, call);
  }

  Ended start(OpType op, Milliseconds timeout, const ReduceOp& by, const Tensors& ins,
              const Tensors& outs, decltype(Task::call) call) {
    Task task{op, {}, {}, std::move(call), {}, outs, by == ReduceOp::AVG ? size_ : 1};
    for (const Tensor& t : outs) task.to.push_back(dense(t));
    task.parts = task.to;
    for (size_t i = 0; i < ins.size(); ++i)
      task.from.push_back(dense(ins[i], outs.empty() ? Tensor() : outs.at(i)));
    return launch(timeout, std::move(task));
  }

  Ended exchange(OpType op, Milliseconds timeout, const Side& in, const Side& out) {
    const int sent = in.counts[rank_], taken = out.counts[rank_];
    require(sent == taken && in.flat.scalar_type() == out.flat.scalar_type(),
            "a rank sends itself ", sent, " ", in.flat.scalar_type(), " and takes ", taken, " ",
            out.flat.scalar_type());
    const auto call = [=, this](const Tensor& from, const Tensor& to, Request r) {
      return MPI_Ialltoallv(from.data_ptr(), in.counts.data(), in.offsets.data(), element(from),
                            to.data_ptr(), out.counts.data(), out.offsets.data(), element(to),
                            comm_, r);
    };
    return launch(timeout, {op, {in.flat}, {out.flat}, call, out.parts, out.wholes});
  }

  Ended launch(Milliseconds timeout, Task task) {
    const size_t requests = std::max({task.from.size(), task.to.size(), size_t{1}});
    task.from.resize(requests), task.to.resize(requests);
    task.timeout = timeout.count() > 0 ? timeout : timeout_;
    const auto self = c10::intrusive_ptr<Group>::unsafe_reclaim_from_nonowning(this);
    const auto flight = c10::make_intrusive<Flight>(self, std::move(task));
    Progress::get().start(flight);
    return flight;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  Milliseconds timeout_;
};

std::pair<int, int> world() {
  return Progress::get().init();
}

c10::intrusive_ptr<Backend> group(const std::vector<int>& ranks, int rank, int tag,
                                  Milliseconds timeout, std::string name) {
  return c10::make_intrusive<Group>(ranks, rank, tag, timeout, std::move(name));
}

void leave(bool orderly) {
  Progress::get().leave(orderly);
}

}  // namespace
}  // namespace ort::mpi

PYBIND11_MODULE(_mpi, m) {
  using py::arg, torch::wrap_pybind_function_no_gil;
  m.def("world", wrap_pybind_function_no_gil(ort::mpi::world));
  m.def("group", wrap_pybind_function_no_gil(ort::mpi::group), arg("ranks"), arg("rank"),
        arg("tag"), arg("timeout"), arg("name"));
  m.def("leave", wrap_pybind_function_no_gil(ort::mpi::leave), arg("orderly"));
}
