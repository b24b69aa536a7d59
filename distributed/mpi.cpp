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

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

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

MPI_Datatype number(const Tensor& t) {
  static const std::map<at::ScalarType, MPI_Datatype> types{
      {at::kFloat, MPI_FLOAT},      {at::kDouble, MPI_DOUBLE}, {at::kHalf, MPI_UINT16_T},
      {at::kChar, MPI_INT8_T},      {at::kShort, MPI_INT16_T}, {at::kInt, MPI_INT32_T},
      {at::kLong, MPI_INT64_T},     {at::kByte, MPI_UINT8_T},  {at::kBool, MPI_UINT8_T},
      {at::kBFloat16, MPI_UINT16_T}};
  const auto found = types.find(t.scalar_type());
  require(found != types.end(), "does not reduce ", t.scalar_type());
  return found->second;
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
  return {sum, sum, combining<kType, [](Tensor to, const Tensor& t) { to.mul_(t); }>(),
          combining<kType, [](Tensor to, const Tensor& t) { at::minimum_out(to, to, t); }>(),
          combining<kType, [](Tensor to, const Tensor& t) { at::maximum_out(to, to, t); }>()};
}

// Under the lock. A sum of bools is `any`; what no row excludes, MPI refuses.
MPI_Op op_of(const Tensor& t, const ReduceOp& reduction) {
  static const Ops halves = of_halves<at::kHalf>(), bfloats = of_halves<at::kBFloat16>();
  const MPI_Op none = MPI_OP_NULL;
  const Ops bools{MPI_LOR, none, MPI_LAND, MPI_LAND, MPI_LOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  const Ops numbers{MPI_SUM, MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};
  const at::ScalarType type = t.scalar_type();
  const Ops& ops = type == at::kHalf       ? halves
                   : type == at::kBFloat16 ? bfloats
                   : type == at::kBool     ? bools
                                           : numbers;
  const bool whole_mean = reduction == ReduceOp::AVG && !t.is_floating_point();
  const MPI_Op op = reduction >= ops.size() || whole_mean ? none : ops[reduction];
  require(op != none, "has no such reduction of ", type);
  return op;
}

// Contiguous, and not in the memory of `other`, as MPI asks: the tensor itself where it can be.
Tensor dense(const Tensor& t, const Tensor& other = {}) {
  require(t.is_cpu() && t.layout() == at::kStrided && !t.is_conj() && !t.is_neg(),
          "takes dense tensors on the CPU, not ", t.toString(), " on ", t.device());
  const bool shared = other.defined() && t.is_alias_of(other);
  return shared ? t.clone(at::MemoryFormat::Contiguous) : t.contiguous();
}

template <class T>
const T& one(const std::vector<T>& all) {
  require(all.size() == 1, "takes one tensor of a rank, not ", all.size());
  return all[0];
}

// What a rank sends to each rank or takes from each: pieces of one buffer.
struct Side {
  std::vector<int> counts, offsets;
  Tensor flat{};
  Tensors parts{}, wholes{};

  // All of t with the ranks from first to last.
  Side(int size, const Tensor& t, int first, int last)
      : counts(size), offsets(size), flat(dense(t)), parts{flat}, wholes{t} {
    std::fill(counts.begin() + first, counts.begin() + last, count(t));
  }

  // Rows of t; as many with each rank where `rows` is empty.
  Side(int size, const Tensor& t, const std::vector<int64_t>& rows) : Side(size, t, 0, 0) {
    count(t);
    c10d::checkSplitSizes(rows, t, size);
    c10d::computeLengthsAndOffsets(rows, t, &counts, &offsets);
  }

  // A tensor a rank, of any sizes.
  Side(int size, const Tensors& ts) : counts(size), offsets(size), wholes(ts) {
    require(ts.size() == counts.size(), ts.size(), " tensors for ", size, " ranks");
    int64_t total = 0;
    for (int i = 0; i < size; total += counts[i++])
      offsets[i] = count(total), counts[i] = count(dense(ts[i]));
    flat = at::empty({count(total)}, ts[0].options().requires_grad(false));
    for (int i = 0; i < size; ++i)
      parts.push_back(flat.narrow(0, offsets[i], counts[i]).view(ts[i].sizes()));
  }

  Side filled() && {
    const at::AutoDispatchBelowADInplaceOrView no_history;
    for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(wholes[i]);
    return std::move(*this);
  }
};

class Group : public c10d::Backend {
  using Ended = c10::intrusive_ptr<c10d::Work>;
  using Lists = std::vector<Tensors>;
  using Request = MPI_Request*;

 public:
  Group(const std::vector<int>& ranks, int rank, int tag, Milliseconds timeout, std::string name)
      : Backend(rank, static_cast<int>(ranks.size())), timeout_(timeout) {
    *channel_ = {rank, size_, std::move(name)};
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

  Ended broadcast(Tensors& ts, const c10d::BroadcastOptions& o) override {
    return start(OpType::BROADCAST, o, {}, ts, [=, this](auto&, const Tensor& t, Request r) {
      return MPI_Ibcast(t.data_ptr(), count(t), element(t), o.rootRank, comm_, r);
    });
  }

  Ended allreduce(Tensors& ts, const c10d::AllreduceOptions& o) override {
    return start(
        OpType::ALLREDUCE, o, {}, ts,
        [=, this](auto&, const Tensor& t, Request r) {
          return MPI_Iallreduce(MPI_IN_PLACE, t.data_ptr(), count(t), number(t),
                                op_of(t, o.reduceOp), comm_, r);
        },
        o.reduceOp);
  }
  Ended allreduce_coalesced(Tensors& ts, const c10d::AllreduceCoalescedOptions& o) override {
    return allreduce(ts, o);
  }

  Ended reduce(Tensors& ts, const c10d::ReduceOptions& o) override {
    const bool root = rank_ == o.rootRank;
    return start(
        OpType::REDUCE, o, {}, ts,
        [=, this](auto&, const Tensor& t, Request r) {
          return MPI_Ireduce(root ? MPI_IN_PLACE : t.data_ptr(), t.data_ptr(), count(t), number(t),
                             op_of(t, o.reduceOp), o.rootRank, comm_, r);
        },
        root ? o.reduceOp : ReduceOp(ReduceOp::SUM));
  }

  Ended allgather(Lists& outs, Tensors& ins, const c10d::AllgatherOptions& o) override {
    return exchange(OpType::ALLGATHER, o, {size_, one(ins), 0, size_}, {size_, one(outs)});
  }
  Ended gather(Lists& outs, Tensors& ins, const c10d::GatherOptions& o) override {
    const int root = o.rootRank;
    const Side in(size_, one(ins), root, root + 1);
    return exchange(OpType::GATHER, o, in,
                    rank_ == root ? Side(size_, one(outs)) : Side(size_, in.flat, 0, 0));
  }
  Ended scatter(Tensors& outs, Lists& ins, const c10d::ScatterOptions& o) override {
    const int root = o.rootRank;
    const Side out(size_, one(outs), root, root + 1);
    return exchange(OpType::SCATTER, o,
                    rank_ == root ? Side(size_, one(ins)).filled() : Side(size_, out.flat, 0, 0),
                    out);
  }
  Ended alltoall(Tensors& outs, Tensors& ins, const c10d::AllToAllOptions& o) override {
    return exchange(OpType::ALLTOALL, o, Side(size_, ins).filled(), {size_, outs});
  }
  Ended alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>& out_rows,
                      std::vector<int64_t>& in_rows, const c10d::AllToAllOptions& o) override {
    return exchange(OpType::ALLTOALL_BASE, o, {size_, dense(in, out), in_rows},
                    {size_, out, out_rows});
  }

  Ended _allgather_base(Tensor& out, Tensor& in, const c10d::AllgatherOptions& o) override {
    Tensors outs{out}, ins{in};
    return allgather_into_tensor_coalesced(outs, ins, o);
  }
  Ended allgather_into_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const c10d::AllgatherOptions& o) override {
    return start(OpType::_ALLGATHER_BASE, o, ins, outs,
                 [=, this](const Tensor& in, const Tensor& out, Request r) {
                   check_parts(out, in);
                   return MPI_Iallgather(in.data_ptr(), count(in), element(in), out.data_ptr(),
                                         count(in), element(in), comm_, r);
                 });
  }

  Ended reduce_scatter(Tensors& outs, Lists& ins, const c10d::ReduceScatterOptions& o) override {
    const Side in = Side(size_, one(ins)).filled();
    for (const Tensor& t : one(ins)) require(t.numel() == one(outs).numel(), "takes equal parts");
    Tensors flat{in.flat};
    return reduce_scatter_tensor_coalesced(outs, flat, o);
  }
  Ended _reduce_scatter_base(Tensor& out, Tensor& in,
                             const c10d::ReduceScatterOptions& o) override {
    Tensors outs{out}, ins{in};
    return reduce_scatter_tensor_coalesced(outs, ins, o);
  }
  Ended reduce_scatter_tensor_coalesced(Tensors& outs, Tensors& ins,
                                        const c10d::ReduceScatterOptions& o) override {
    return start(
        OpType::_REDUCE_SCATTER_BASE, o, ins, outs,
        [=, this](const Tensor& in, const Tensor& out, Request r) {
          check_parts(in, out);
          return MPI_Ireduce_scatter_block(in.data_ptr(), out.data_ptr(), count(out), number(out),
                                           op_of(out, o.reduceOp), comm_, r);
        },
        o.reduceOp);
  }

  Ended send(Tensors& ts, int to, int tag) override {
    return start(OpType::SEND, c10d::BarrierOptions(), {one(ts)}, {},
                 [=, this](const Tensor& t, auto&, Request r) {
                   return MPI_Isend(t.data_ptr(), count(t), element(t), to, tag, comm_, r);
                 });
  }
  Ended recv(Tensors& ts, int from, int tag) override {
    return start(OpType::RECV, c10d::BarrierOptions(), {}, {one(ts)},
                 [=, this](auto&, const Tensor& t, Request r) {
                   return MPI_Irecv(t.data_ptr(), count(t), element(t), from, tag, comm_, r);
                 });
  }
  Ended recvAnysource(Tensors& ts, int tag) override { return recv(ts, MPI_ANY_SOURCE, tag); }

  Ended barrier(const c10d::BarrierOptions& o) override {
    return start(OpType::BARRIER, o, {}, {},
                 [this](auto&, auto&, Request r) { return MPI_Ibarrier(comm_, r); });
  }

 private:
  // `all` has a part for each rank.
  void check_parts(const Tensor& all, const Tensor& part) const {
    require(all.scalar_type() == part.scalar_type() && all.numel() == part.numel() * size_,
            all.scalar_type(), all.sizes(), " is not ", size_, " times ", part.scalar_type(),
            part.sizes());
  }

  template <class Options>
  Ended launch(const Options& o, Task task) {
    task.timeout = o.timeout.count() > 0 ? o.timeout : timeout_;
    const auto flight = c10::make_intrusive<Flight>(channel_, std::move(task));
    Progress::get().start(flight);
    return flight;
  }

  template <class Options>
  Ended start(OpType op, const Options& o, const Tensors& ins, const Tensors& outs, Call call,
              const ReduceOp& reduction = ReduceOp::SUM) {
    Task task{.op = op, .call = std::move(call), .results = outs};
    for (const Tensor& t : outs) task.to.push_back(dense(t));
    for (size_t i = 0; i < ins.size(); ++i)
      task.from.push_back(dense(ins[i], outs.empty() ? Tensor() : outs.at(i)));
    task.parts = task.to;
    if (reduction == ReduceOp::AVG) task.divisor = size_;
    return launch(o, std::move(task));
  }

  template <class Options>
  Ended exchange(OpType op, const Options& o, Side in, Side out) {
    require(
        in.flat.scalar_type() == out.flat.scalar_type() && in.counts[rank_] == out.counts[rank_],
        "a rank would send itself ", in.counts[rank_], " ", in.flat.scalar_type(), " and take ",
        out.counts[rank_], " ", out.flat.scalar_type());
    Task task{
        .op = op, .from = {in.flat}, .to = {out.flat}, .parts = out.parts, .results = out.wholes};
    task.call = [=, this](const Tensor& from, const Tensor& to, Request r) {
      return MPI_Ialltoallv(from.data_ptr(), in.counts.data(), in.offsets.data(), element(from),
                            to.data_ptr(), out.counts.data(), out.offsets.data(), element(to),
                            comm_, r);
    };
    return launch(o, std::move(task));
  }

  const std::shared_ptr<Channel> channel_ = std::make_shared<Channel>();
  MPI_Comm comm_ = MPI_COMM_NULL;
  Milliseconds timeout_;
};

// Where this process is among all, once MPI has begun.
std::pair<int, int> world() {
  int rank = 0, size = 0;
  Progress::get().init();
  Progress::get().locked([&] {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  });
  return {rank, size};
}

// Of rank 0, at most 1 KiB.
std::string from_first(std::string text) {
  text.resize(1024);
  Progress::get().locked([&] { check(MPI_Bcast(text.data(), 1024, MPI_CHAR, 0, MPI_COMM_WORLD)); });
  return text.c_str();
}

std::string library() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, ' ');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return text.c_str();
}

c10::intrusive_ptr<c10d::Backend> group(const std::vector<int>& ranks, int rank, int tag,
                                        Milliseconds timeout, std::string name) {
  return c10::make_intrusive<Group>(ranks, rank, tag, timeout, std::move(name));
}

}  // namespace
}  // namespace ort::mpi

PYBIND11_MODULE(_mpi, m) {
  using torch::wrap_pybind_function_no_gil;
  m.doc() = "The backend ort_mpi: groups of ranks over MPI.";
  m.def("world", wrap_pybind_function_no_gil(ort::mpi::world));
  m.def("from_first", wrap_pybind_function_no_gil(ort::mpi::from_first));
  m.def("library", ort::mpi::library);
  m.def("group", wrap_pybind_function_no_gil(ort::mpi::group), py::arg("ranks"), py::arg("rank"),
        py::arg("tag"), py::arg("timeout"), py::arg("name"));
  m.def("leave",
        wrap_pybind_function_no_gil([](bool orderly) { ort::mpi::Progress::get().leave(orderly); }),
        py::arg("orderly"));
}
