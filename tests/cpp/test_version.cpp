// The version reaches C++ from ortmodule/__init__.py.
#include "csrc/core/version.h"

#include <gtest/gtest.h>

#include <string>

TEST(Version, IsThreeNumbers) {
  int major = -1, minor = -1, patch = -1;
  ASSERT_EQ(std::sscanf(ort::version(), "%d.%d.%d", &major, &minor, &patch), 3) << ort::version();
  EXPECT_GT(major + minor + patch, 0);
}
