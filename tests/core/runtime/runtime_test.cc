// Work on several threads: every tile runs once, there is no deadlock, and the
// bytes do not depend on the pieces of memory.

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/runtime/pieces.h"
#include "core/runtime/pool.h"
#include "core/runtime/row_map.h"
#include "gtest/gtest.h"

namespace posenc::core {
namespace {

// Makes the first tile take so long that the other tiles are spread.
void WorkIfFirst(std::int64_t tile) {
  if (tile > 0) return;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin <
         std::chrono::milliseconds(1)) {
  }
}

TEST(ComputePool, ForEachCallsEveryTileOnce) {
  for (const int threads : {1, 2, 5}) {
    ComputePool pool(threads);
    for (const std::int64_t tiles : {0, 1, 2, 7, 1000}) {
      for (const bool spread : {false, true}) {
        std::vector<std::atomic<int>> calls(tiles);
        pool.ForEach(tiles, [&](std::int64_t i) {
          if (spread) WorkIfFirst(i);
          calls[i].fetch_add(1);
          return true;
        });
        for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(ComputePool, ForEachEndsWhenACallSaysSo) {
  for (const int threads : {1, 2, 5}) {
    ComputePool pool(threads);
    for (const std::int64_t last : {0, 1, 500}) {
      std::vector<std::atomic<int>> calls(1000);
      const std::int64_t n = pool.ForEach(1000, [&](std::int64_t i) {
        WorkIfFirst(i);
        calls[i].fetch_add(1);
        return i != last;
      });
      // Other threads may have taken a few more tiles meanwhile.
      EXPECT_GT(n, last);
      for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(calls[i], i < n);
    }
  }
}

TEST(ComputePool, WorkersShareALongComputation) {
  ComputePool pool(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  // Returns whether two threads take tiles: the caller and a worker, or both
  // workers.
  const auto shared = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
    return threads.size() >= 2;
  };
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  pool.ForEach(10, [&](std::int64_t i) {
    WorkIfFirst(i);
    // The caller stays in its second tile until a worker has taken one, too.
    while (i > 0 && !shared() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    return true;
  });
  EXPECT_GE(threads.size(), 2);
}

TEST(ComputePool, AWorkerMaySpreadWorkItself) {
  std::atomic<int> done{0};
  {
    ComputePool pool(2);
    for (int job = 0; job < 20; ++job) {
      pool.Submit([&] {
        pool.ForEach(50, [&](std::int64_t i) {
          WorkIfFirst(i);
          done.fetch_add(1);
          return true;
        });
      });
    }
  }  // the pool's destructor runs all submitted jobs
  EXPECT_EQ(done.load(), 1000);
}

TEST(ComputePool, ItsThreadsHaveTheGivenNiceness) {
  const auto own = [] {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  };
  const int here = own();
  for (const int niceness : {0, 3}) {
    std::atomic<int> there{-100};
    {
      ComputePool pool(1, niceness);
      pool.Submit([&] { there.store(own()); });
    }
    EXPECT_EQ(there.load(), std::min(here + niceness, 19));
    EXPECT_EQ(own(), here);
  }
}

TEST(ComputePool, TheCallerFinishesAloneWhereEveryWorkerIsBusy) {
  std::atomic<bool> release{false};
  std::atomic<int> busy{0};
  ComputePool pool(2);
  for (int i = 0; i < 2; ++i) {
    pool.Submit([&] {
      busy.fetch_add(1);
      while (!release.load()) std::this_thread::yield();
    });
  }
  while (busy.load() < 2) std::this_thread::yield();
  int done = 0;  // the workers are busy, so one thread adds
  pool.ForEach(100, [&](std::int64_t i) {
    WorkIfFirst(i);
    ++done;
    return true;
  });
  EXPECT_EQ(done, 100);
  release.store(true);
}

// Adds the row's number to each byte.
class AddRow final : public RowMap {
 public:
  AddRow(std::int64_t rows, std::size_t bytes)
      : RowMap(rows, bytes, bytes, true) {}

  std::unique_ptr<Worker> StartWorker(std::int64_t,
                                      std::int64_t) const override {
    class Adder final : public Worker {
     public:
      explicit Adder(std::size_t bytes) : bytes_(bytes) {}
      void Run(std::int64_t first, std::int64_t rows, const void* in,
               void* out) override {
        for (std::int64_t i = 0; i < rows * static_cast<std::int64_t>(bytes_);
             ++i) {
          static_cast<char*>(out)[i] = static_cast<char>(
              static_cast<const char*>(in)[i] + first + i / bytes_);
        }
      }

     private:
      const std::int64_t bytes_;
    };
    return std::make_unique<Adder>(in_bytes());
  }
};

Pieces::List Cut(std::string* text, std::size_t piece) {
  Pieces::List pieces;
  for (std::size_t i = 0; i < text->size(); i += piece) {
    pieces.push_back(absl::MakeSpan(*text).subspan(i, piece));
  }
  return pieces;
}

TEST(MapRows, GivesTheSameBytesHoweverTheMemoryIsCut) {
  const AddRow map(13, 6);
  std::string input(13 * 6, '\0');
  std::iota(input.begin(), input.end(), 1);
  std::string expected = input;
  MapAll(map, input.data(), expected.data());
  for (std::size_t in_piece = 1; in_piece <= input.size(); ++in_piece) {
    for (const std::size_t out_piece : {1, 5, 6, 7, 78}) {
      std::string in = input, out(input.size(), '?');
      MapRows(map, Pieces(Cut(&in, in_piece)), Pieces(Cut(&out, out_piece)), 0,
              13);
      ASSERT_EQ(out, expected) << in_piece << " " << out_piece;
    }
    std::string both = input;
    const Pieces pieces(Cut(&both, in_piece));
    MapRows(map, pieces, pieces, 0, 5);
    MapRows(map, pieces, pieces, 5, 8);
    ASSERT_EQ(both, expected) << in_piece;
  }
}

TEST(MapRows, MapsPartsOfATensorAsItMapsTheWhole) {
  const auto map = std::make_shared<AddRow>(13, 5);
  std::string in(65, '\0'), whole(65, '\0'), parts(65, '\0');
  std::iota(in.begin(), in.end(), 'a');
  MapAll(*map, in.data(), whole.data());
  const ConstPieces pieces = Pieces(Cut(&in, 7));
  std::int64_t first = 0;
  for (const std::int64_t rows : {1, 4, 8}) {
    const RowRange range(map, first, rows);
    MapRows(range, pieces.Part(first * 5, rows * 5),
            Pieces(parts.data() + first * 5, rows * 5), 0, rows);
    first += rows;
  }
  EXPECT_EQ(parts, whole);
}

TEST(Pieces, ReadAndWriteAcrossThem) {
  std::string text = "abcdefghij";
  const Pieces pieces(Cut(&text, 3));
  EXPECT_EQ(pieces.size(), 10u);
  std::string read(5, ' ');
  pieces.Read(2, 5, read.data());
  EXPECT_EQ(read, "cdefg");
  pieces.Write(1, 8, "12345678");
  EXPECT_EQ(text, "a12345678j");
  EXPECT_EQ(pieces.From(4).size(), 2u);
  EXPECT_TRUE(pieces.From(10).empty());
}

TEST(Pieces, ConstOnesReadTheSameBytes) {
  std::string text = "abcdefghij";
  const Pieces pieces(Cut(&text, 3));
  const ConstPieces bytes = pieces;
  EXPECT_EQ(bytes.size(), 10u);
  std::string read(7, ' ');
  bytes.Read(2, 7, read.data());
  EXPECT_EQ(read, "cdefghi");
  EXPECT_EQ(bytes.From(4).data(), pieces.From(4).data());
  EXPECT_EQ(bytes.From(4).size(), 2u);
  EXPECT_TRUE(bytes.From(10).empty());
  EXPECT_EQ(ConstPieces(text.data(), text.size()).From(1).size(), 9u);
}

TEST(Pieces, ConstOnesCannotBecomeWritable) {
  EXPECT_TRUE((std::is_convertible_v<Pieces, ConstPieces>));
  EXPECT_FALSE((std::is_constructible_v<Pieces, ConstPieces>));
}

}  // namespace
}  // namespace posenc::core
