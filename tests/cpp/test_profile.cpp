// The trace of a profile: valid JSON whatever the names, and every digit of the times.
#include <gtest/gtest.h>

#include "csrc/runtime/json.h"
#include "csrc/runtime/profile.h"

namespace ort {
namespace {

TEST(Profile, TheTraceKeepsDigitsAndQuotesNames) {
  Profile profile;
  profile.add({"mul+\"add\"", "cpu", 98765432109.125, 1.5, 0});
  profile.add({"a\\b\n", "cpu", 98765443219.375, 2000000.25, 1});
  EXPECT_EQ(
      profile.chrome_trace(),
      "{\"traceEvents\": [\n"
      "{\"name\": \"mul+\\\"add\\\"\", \"cat\": \"cpu\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, "
      "\"ts\": 0.000, \"dur\": 1.500},\n"
      "{\"name\": \"a\\\\b\\u000a\", \"cat\": \"cpu\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, "
      "\"ts\": 11110.250, \"dur\": 2000000.250}\n]}\n");
}

TEST(Profile, NoEventIsAnEmptyTrace) {
  EXPECT_EQ(Profile().chrome_trace(), "{\"traceEvents\": [\n]}\n");
}

TEST(Json, QuotedIsOneString) {
  EXPECT_EQ(json_text("plain {}"), "\"plain {}\"");
  EXPECT_EQ(json_text("\t\"\\\x01"), "\"\\u0009\\\"\\\\\\u0001\"");
  EXPECT_EQ(json_text("s\xc3\xa4"), "\"s\xc3\xa4\"");
}

}  // namespace
}  // namespace ort
