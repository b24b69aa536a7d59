// Element access, shape arithmetic and checks that the reference kernels share.
#include "providers/reference/reference.h"

#include "csrc/core/convert.h"

namespace ort::reference {
namespace {

template <class W>
W from_half(const void* data, int64_t i) {
  return number_as<W>(static_cast<double>(half_to_float(static_cast<const uint16_t*>(data)[i])));
}
template <class W>
W from_bfloat(const void* data, int64_t i) {
  return number_as<W>(static_cast<double>(bfloat_to_float(static_cast<const uint16_t*>(data)[i])));
}
template <class W>
void to_half(void* data, int64_t i, W value) {
  static_cast<uint16_t*>(data)[i] = float_to_half(static_cast<float>(value));
}
template <class W>
void to_bfloat(void* data, int64_t i, W value) {
  static_cast<uint16_t*>(data)[i] = float_to_bfloat(static_cast<float>(value));
}

}  // namespace

template <class W>
In<W> reader(DType dtype, const void* data) {
  if (dtype == DType::f16) return {data, from_half<W>};
  if (dtype == DType::bf16) return {data, from_bfloat<W>};
  return dispatch(dtype, [data]<class T>() -> In<W> {
    return {data,
            [](const void* p, int64_t i) { return number_as<W>(static_cast<const T*>(p)[i]); }};
  });
}

template <class W>
Out<W> writer(DType dtype, void* data) {
  if (dtype == DType::f16) return {data, to_half<W>};
  if (dtype == DType::bf16) return {data, to_bfloat<W>};
  return dispatch(dtype, [data]<class T>() -> Out<W> {
    return {data, [](void* p, int64_t i, W value) { static_cast<T*>(p)[i] = number_as<T>(value); }};
  });
}

template In<double> reader<double>(DType, const void*);
template In<int64_t> reader<int64_t>(DType, const void*);
template In<uint64_t> reader<uint64_t>(DType, const void*);
template Out<double> writer<double>(DType, void*);
template Out<int64_t> writer<int64_t>(DType, void*);
template Out<uint64_t> writer<uint64_t>(DType, void*);

void KernelCall::refuse(const std::string& why) const {
  fail("[{}] {}; {}", site_.op, why, site_.place);
}

int64_t KernelCall::number(size_t i) const {
  require(element_count(sizes(i)) == 1, "input {} has shape {}, expected one element", i, sizes(i));
  return in<int64_t>(i)[0];
}

int64_t KernelCall::axis(int64_t axis, int64_t rank) const {
  require(axis >= -rank && axis < rank, "axis {} does not exist, the input has rank {}", axis,
          rank);
  return axis < 0 ? axis + rank : axis;
}

int64_t KernelCall::index(int64_t value, int64_t size) const {
  require(value >= -size && value < size, "index {} is out of range for size {}", value, size);
  return value < 0 ? value + size : value;
}

void KernelCall::expect(size_t i, const Sizes& sizes) const {
  require(sizes == out_sizes(i), "output {} has shape {}, the plan expected {}", i, sizes,
          out_sizes(i));
}

void KernelCall::expect_count(size_t i, int64_t count) const {
  require(count == element_count(out_sizes(i)), "output {} has {} elements, the plan expected {}",
          i, count, out_sizes(i));
}

namespace {

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(Site site, const Run& run) : site_(std::move(site)), run_(run) {}
  void run(const Args& args) const override { run_(KernelCall(site_, args)); }
  std::string name() const override { return site_.op; }

 private:
  Site site_;
  Run run_;
};

// Attributes of type Dims become numbers: a kernel knows no symbols.
Attrs concrete(const Attrs& attrs, const Symbols* symbols) {
  Attrs result = attrs;
  for (const auto& [name, value] : attrs)
    if (const Dims* dims = std::get_if<Dims>(&value)) result.set(name, evaluate(*dims, symbols));
  return result;
}

}  // namespace

void add(KernelTable& table, std::string_view op, TypeSet types, Run run, When when) {
  table.op(op).add("loops", types, std::move(when), [run = std::move(run)](const Request& r) {
    Site site{r.node().qualified(), r.node().describe(), concrete(r.attrs(), r.binding().symbols),
              r.binding().in, r.binding().out};
    return std::make_unique<ReferenceKernel>(std::move(site), run);
  });
}

void copy_all(const KernelCall& c) {
  c.expect_count(0, element_count(c.sizes()));
  if (c.out_data() != c.data(0)) bytes(c, 0).copy(0, 0, element_count(c.sizes()));
}

Sizes broadcast_strides(const KernelCall& call, const Sizes& from, const Sizes& to) {
  call.require(from.size() <= to.size(), "shape {} does not broadcast to {}", from, to);
  const size_t offset = to.size() - from.size();
  const Sizes own = strides_of(from);
  Sizes strides(to.size(), 0);
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1) continue;
    call.require(from[d] == to[offset + d], "shape {} does not broadcast to {}", from, to);
    strides[offset + d] = own[d];
  }
  return strides;
}

Split split_at(const Sizes& sizes, int64_t axis) {
  const auto at = sizes.begin() + axis;
  return {element_count(Sizes(sizes.begin(), at)), *at, element_count(Sizes(at + 1, sizes.end()))};
}

Bytes bytes(const KernelCall& call, size_t in, size_t out) {
  return {static_cast<const char*>(call.data(in)), static_cast<char*>(call.out_data(out)),
          size_of(call.dtype(in))};
}

void fill_zero(const KernelCall& call, size_t out) {
  const int64_t count = element_count(call.out_sizes(out));
  if (count > 0)
    std::memset(call.out_data(out), 0, static_cast<size_t>(count) * size_of(call.out_dtype(out)));
}

}  // namespace ort::reference
