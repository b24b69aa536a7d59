// Compiled code on disk: found again, and never where its file is not what was written.
#include "providers/cuda/code_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace ort::cuda {
namespace {

namespace fs = std::filesystem;
using Code = std::vector<char>;

class CodeCacheTest : public testing::Test {
 protected:
  CodeCacheTest() {
    char name[] = "/tmp/code_cacheXXXXXX";
    root_ = mkdtemp(name);
    folder_ = root_ / "caches" / "ours";
  }
  ~CodeCacheTest() override { fs::remove_all(root_); }

  CodeCache cache(uint64_t limit = 1 << 20) const { return CodeCache(folder_, limit); }
  fs::path file() const { return *fs::directory_iterator(folder_); }
  size_t files() const {
    const fs::directory_iterator all(folder_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path root_, folder_;
  const std::string key_ = "nvrtc 1.2 --arch\ntext of a kernel";
  const Code code_{'c', '\0', 'd', 'e', '\n'};
};

TEST_F(CodeCacheTest, FoundByItsWholeKeyInAFolderOfTheUsersAlone) {
  EXPECT_FALSE(cache().find(key_));
  cache().keep(key_, code_);
  EXPECT_EQ(cache().find(key_), code_);
  EXPECT_FALSE(cache().find(key_ + " "));
  struct stat found{};
  ASSERT_EQ(stat(folder_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(CodeCacheTest, WithoutAFolderNothingIsKept) {
  const CodeCache none("");
  none.keep(key_, code_);
  EXPECT_FALSE(none.find(key_));
}

TEST_F(CodeCacheTest, AFileThatLostOrChangedAByteIsReplaced) {
  cache().keep(key_, code_);
  const std::string whole = read(file());
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 1;
    write(file(), changed);
    EXPECT_FALSE(cache().find(key_)) << i;
    write(file(), whole.substr(0, i));
    EXPECT_FALSE(cache().find(key_)) << i;
  }
  write(file(), whole + "x");
  EXPECT_FALSE(cache().find(key_));
  cache().keep(key_, code_);
  EXPECT_EQ(cache().find(key_), code_);
  EXPECT_EQ(files(), 1u);
}

// As two keys of one hash would have it.
TEST_F(CodeCacheTest, AnotherKeysFileIsNotTrusted) {
  cache().keep(key_, code_);
  const fs::path own = file();
  const std::string other = key_.substr(1) + "?";
  cache().keep(other, {'x'});
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path() != own) fs::rename(entry.path(), own);
  EXPECT_FALSE(cache().find(key_));
  EXPECT_FALSE(cache().find(other));
}

TEST_F(CodeCacheTest, LinksPipesAndHugeFilesAreNotRead) {
  cache().keep(key_, code_);
  const fs::path own = file(), moved = root_ / "moved";
  fs::rename(own, moved);
  fs::create_symlink(moved, own);
  EXPECT_FALSE(cache().find(key_));
  cache().keep(key_, code_);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(own)));
  EXPECT_EQ(cache().find(key_), code_);
  fs::remove(own);
  ASSERT_EQ(mkfifo(own.c_str(), 0600), 0);
  EXPECT_FALSE(cache().find(key_));
  fs::remove(own);
  fs::copy(moved, own);
  ASSERT_EQ(truncate(own.c_str(), off_t{1} << 40), 0);
  EXPECT_FALSE(cache().find(key_));
}

TEST_F(CodeCacheTest, AFolderThatOthersMayWriteIsNotUsedAndThatIsToldOnce) {
  cache().keep(key_, code_);
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache().find(key_));
  cache().keep("other", code_);
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::remove);
  write(root_ / "file", "");
  CodeCache(root_ / "file" / "ours").keep(key_, code_);
  EXPECT_FALSE(CodeCache(root_ / "file" / "ours").find(key_));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ortmodule: compiled kernels are not kept in " +
                                                        folder_.string() +
                                                        ": others may write there\n");
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(cache().find(key_), code_);
}

TEST_F(CodeCacheTest, WhatWasUsedLongestAgoGoesAndNothingElse) {
  const Code large(1000, 'x');
  for (const char* key : {"a", "b", "c"}) cache().keep(key, large);
  write(folder_ / "notes.txt", std::string(5000, 'n'));
  const auto now = fs::file_time_type::clock::now();
  for (const auto& entry : fs::directory_iterator(folder_))
    fs::last_write_time(entry.path(), now - std::chrono::hours(2));
  EXPECT_TRUE(cache().find("a"));  // used now
  const std::string part = file().stem().string().substr(0, 4) + "000000000000.code.0123456789";
  write(folder_ / part, "half");
  fs::last_write_time(folder_ / part, now - std::chrono::hours(2));
  cache(2 * 1100).keep("d", large);
  EXPECT_TRUE(cache().find("a") && cache().find("d"));
  EXPECT_FALSE(cache().find("b") || cache().find("c"));
  EXPECT_EQ(files(), 3u);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
}

TEST_F(CodeCacheTest, ManyAtOnceSeeWholeFilesOrNone) {
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = "key " + std::to_string(i % 5);
        const Code code(static_cast<size_t>(1000 + i % 5), 'x');
        cache(3 * 1100).keep(key, code);
        const auto found = cache(3 * 1100).find("key " + std::to_string((i + t) % 5));
        if (found && found->size() != static_cast<size_t>(1000 + (i + t) % 5)) ++wrong;
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(files(), 5u);
}

}  // namespace
}  // namespace ort::cuda
