// Element types: their names, the half and bfloat conversions, element access.
#include "csrc/core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ort {
namespace {

TEST(DType, NamesAreReadBack) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = static_cast<DType>(number);
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
    EXPECT_TRUE(known_dtype(number));
  }
  EXPECT_FALSE(known_dtype(0));
  EXPECT_FALSE(known_dtype(kDTypes));
  EXPECT_THROW(dtype_named("float31"), Error);
}

TEST(Half, EveryNumberSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    else
      EXPECT_EQ(float_to_half(value), half);
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(half_to_float(float_to_half(1.0f + 0x1p-11f)), 1.0f);  // a tie, down to even
  EXPECT_EQ(half_to_float(float_to_half(1.0f + 3 * 0x1p-11f)), 1.0f + 2 * 0x1p-10f);  // up to even
  EXPECT_EQ(half_to_float(float_to_half(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(half_to_float(float_to_half(65520.0f))));
  EXPECT_EQ(half_to_float(float_to_half(0x1p-25f)), 0.0f);
  EXPECT_EQ(half_to_float(float_to_half(0x1.8p-24f)), 0x1p-23f);
  EXPECT_EQ(half_to_float(float_to_half(0x1.ffcp-15f)), 0x1p-14f);  // a subnormal becomes normal
  EXPECT_TRUE(std::signbit(half_to_float(float_to_half(-0.0f))));
}

TEST(BFloat, EveryNumberSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto brain = static_cast<uint16_t>(bits);
    const float value = bfloat_to_float(brain);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(value))));
    else
      EXPECT_EQ(float_to_bfloat(value), brain);
  }
}

TEST(BFloat, RoundsToNearestEven) {
  EXPECT_EQ(bfloat_to_float(float_to_bfloat(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(bfloat_to_float(float_to_bfloat(1.0f + 3 * 0x1p-8f)), 1.0f + 2 * 0x1p-7f);
  EXPECT_TRUE(std::isinf(bfloat_to_float(float_to_bfloat(std::numeric_limits<float>::max()))));
}

TEST(Tensor, ElementsOfEveryNumericDType) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i16, DType::i32,
        DType::i64, DType::u8, DType::u16, DType::u32, DType::u64}) {
    Tensor tensor = Tensor::empty(dtype, {2, 2});
    set_element(tensor, 3, 5.0);
    EXPECT_EQ(element_as_double(tensor, 3), 5.0) << dtype;
    EXPECT_EQ(element_as_int(tensor, 3), 5) << dtype;
    EXPECT_EQ(element_as_double(tensor, 0), 0.0) << dtype;
  }
  EXPECT_THROW(element_as_double(Tensor::empty(DType::c64, {1}), 0), Error);
}

TEST(Tensor, SizesAreChecked) {
  EXPECT_THROW(Tensor::empty(DType::f32, {-1}), Error);
  EXPECT_THROW(Tensor::empty(DType::f32, {int64_t{1} << 62, 4}), Error);
  EXPECT_THROW(Tensor::empty(DType::f64, {int64_t{1} << 61}), Error);
  EXPECT_EQ(Tensor::empty(DType::f32, {0, 3}).bytes(), 0u);
}

TEST(Tensor, SameBytesComparesDTypeShapeAndContents) {
  EXPECT_TRUE(same_bytes(Tensor::of({1, 2}), Tensor::of({1, 2})));
  EXPECT_FALSE(same_bytes(Tensor::of({1, 2}), Tensor::of({1, 3})));
  EXPECT_FALSE(same_bytes(Tensor::scalar(DType::f32, 0.0), Tensor::scalar(DType::i32, 0.0)));
}

}  // namespace
}  // namespace ort
