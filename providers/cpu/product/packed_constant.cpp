// The packed matrix and its way back.
#include "providers/cpu/product/packed_constant.h"

#include "providers/cpu/pack_cache.h"

namespace ort::cpu {

template <class T>
PackedMatrix<T>::PackedMatrix(const Constant& constant, const MatrixOf& matrix)
    : matrix_(matrix),
      memory_(discardable_tensor(sizeof(T) == 4 ? DType::f32 : DType::f64,
                                 {packed_count<T>(matrix.k, matrix.n)})) {
  const auto bytes = constant.hold();
  const T* from = static_cast<const T*>(bytes.get()) + matrix.first;
  pack(matrix.k, matrix.n, stored(from, matrix.row, matrix.transposed), memory_.as<T>());
}

template <class T>
void PackedMatrix<T>::unpack(void* to) const {
  const auto [k, n, first, row, transposed] = matrix_;
  cpu::unpack(k, n, data(), static_cast<T*>(to) + first, transposed ? 1 : row,
              transposed ? row : 1);
}

template <class T>
std::shared_ptr<const PackedMatrix<T>> packed_constant(const Constant& constant,
                                                       const MatrixOf& matrix) {
  static auto& packs = *new PackCache<MatrixOf, PackedMatrix<T>>;
  return packs.find(constant, matrix,
                    [&] { return std::make_shared<const PackedMatrix<T>>(constant, matrix); });
}

template class PackedMatrix<float>;
template class PackedMatrix<double>;
template std::shared_ptr<const PackedMatrix<float>> packed_constant(const Constant&,
                                                                    const MatrixOf&);
template std::shared_ptr<const PackedMatrix<double>> packed_constant(const Constant&,
                                                                     const MatrixOf&);

}  // namespace ort::cpu
