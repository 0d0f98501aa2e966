// SPDX-License-Identifier: Apache-2.0
// All tile widths of a set, all ranges of vectors and all ways to pass keys give the same bits for the same query,
// whatever the neighbouring columns contain. Decode relies on this to match a full pass bit for bit.
#include <algorithm>

#include "kernels/tables.h"

namespace qkv::test {
namespace {

constexpr int kQueries = 48, kKeys = 23, kD = 19, kDv = 24;
using Floats = std::vector<float>;
using Halves = std::vector<std::uint16_t>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// How the queries are computed.
struct Way {
  const TileKernels* tile;
  bool vector_by_vector, key_by_key;
};

// Queries and keys: row-major, one row per query or key.
struct Data {
  Data() {
    Numbers numbers(40);
    for (Floats* x : {&q, &dout, &slopes, &distances, &split_m, &split_l, &bias, &lse, &delta}) {
      x->resize(kQueries * kDv);
      for (float& value : *x) value = numbers.normal();
    }
    for (Floats* x : {&k, &v}) {
      x->resize(kKeys * kDv);
      for (float& value : *x) value = 2 * numbers.normal();
    }
    for (std::size_t e = 5; e < bias.size(); e += 7) bias[e] = -kInf;
    for (float& x : split_l) x = std::abs(x);
    for (float& x : distances) x = std::round(4 * x);
  }
  Floats q, dout;            // [kQueries][kD] each
  Floats k, v;               // [kKeys][kD], [kKeys][kDv]
  Floats slopes, distances;  // [kQueries]
  Floats split_m, split_l;   // [kQueries]
  Floats bias;               // [kKeys][kQueries]
  Floats lse, delta;         // [kQueries]
};

// One tile of queries, from query r0 on; columns without a query contain NaN.
class Tile {
 public:
  Tile(const Data& data, const Way& way, int r0)
      : data_(data), way_(way), t_(*way.tile), w_(t_.width), r0_(r0), rows_(std::min(kQueries - r0, w_)) {}

  // Calls kernel(first, last) for the whole tile or for each of its vectors.
  template <class Call>
  void ranges(const Call& call) const {
    const int vectors = w_ / t_.lanes;
    if (!way_.vector_by_vector) return call(0, vectors);
    for (int x = vectors - 1; x >= 0; --x) call(x, x + 1);
  }
  // Calls kernel(j, n) for all keys at once or for each key.
  template <class Call>
  void keys(const Call& call) const {
    if (!way_.key_by_key) return call(0, kKeys);
    for (int j = 0; j < kKeys; ++j) call(j, 1);
  }
  // One number per query, [w].
  Floats column(const Floats& from) const {
    Floats x(at(w_), kNaN);
    for (int i = 0; i < rows_; ++i) x[at(i)] = from[at(r0_ + i)];
    return x;
  }
  // [d][w] from rows of d.
  Floats transposed(const Floats& from, int d) const {
    Floats x(at(d * w_), kNaN);
    for (int c = 0; c < d; ++c)
      for (int i = 0; i < rows_; ++i) x[at(c * w_ + i)] = from[at((r0_ + i) * d + c)];
    return x;
  }
  // [keys][w] from [keys][kQueries].
  Floats columns(const Floats& from) const {
    Floats x(at(kKeys * w_), kNaN);
    for (int j = 0; j < kKeys; ++j)
      for (int i = 0; i < rows_; ++i) x[at(j * w_ + i)] = from[at(j * kQueries + r0_ + i)];
    return x;
  }

  void forward() {
    const Floats qt = transposed(data_.q, kD), slopes = column(data_.slopes), distances = column(data_.distances);
    const Floats bias = columns(data_.bias);
    Floats s(at(kKeys * w_)), slope(s), max(at(w_), -kInf), m(max), l(at(w_), 0), ot(at(kDv * w_), 0);
    Floats begin(at(w_)), end(at(w_));
    for (int i = 0; i < w_; ++i)
      begin[at(i)] = static_cast<float>((r0_ + i) % 5), end[at(i)] = static_cast<float>(kKeys - (r0_ + i) % 7);
    for (int round = 0; round < 2; ++round) {  // the second round's scores are larger, so that some maxima move
      std::fill(max.begin(), max.end(), -kInf);
      keys([&](int j, int n) {
        ranges([&](int first, int last) {
          float* at_j = s.data() + j * w_;
          t_.scores(data_.k.data() + j * kD, kD, qt.data(), kD, n, rows_, first, last, at_j, max.data());
          if (round == 1) {
            t_.scale(9.0f, n, first, last, at_j);
          } else {
            t_.scale(0.3f, n, first, last, at_j);
            t_.softcap(5.0f, n, first, last, at_j, slope.data() + j * w_);
            Floats moved = distances;
            for (float& x : moved) x += static_cast<float>(j);
            t_.alibi(slopes.data(), moved.data(), n, first, last, at_j);
            t_.add(bias.data() + j * w_, n, first, last, at_j);
            t_.limit(begin.data(), end.data(), j, n, first, last, at_j);
          }
        });
      });
      keep(s, kKeys);
      if (round == 0) keep(slope, kKeys);
      std::fill(max.begin(), max.end(), -kInf);
      keys([&](int j, int n) {
        ranges([&](int first, int last) { t_.column_max(s.data() + j * w_, n, first, last, max.data()); });
      });
      keep(max, 1);
      t_.rescale(1.4f, max.data(), kDv, m.data(), l.data(), ot.data());
      keep(m, 1), keep(l, 1), keep(ot, kDv);
      bool fresh = round == 0;
      keys([&](int j, int n) {
        ranges([&](int first, int last) {
          t_.exponentials(1.4f, n, first, last, m.data(), l.data(), s.data() + j * w_);
          t_.accumulate(s.data() + j * w_, data_.v.data() + j * kDv, kDv, kDv, n, rows_, first, last, fresh, ot.data());
        });
        fresh = false;
      });
      keep(s, kKeys), keep(l, 1), keep(ot, kDv);
    }
    const Floats split_m = column(data_.split_m), split_l = column(data_.split_l),
                 split_ot = transposed(data_.dout, kDv);
    t_.merge(1.4f, kDv, split_m.data(), split_l.data(), split_ot.data(), m.data(), l.data(), ot.data());
    keep(m, 1), keep(l, 1), keep(ot, kDv);
    rows_out(ot);
  }

  void backward() {
    const Floats qt = transposed(data_.q, kD), dot = transposed(data_.dout, kD);
    const Floats lse = column(data_.lse), delta = column(data_.delta);
    Floats s(at(kKeys * w_)), ds(s), max(at(w_), -kInf), dots(at(w_));
    keys([&](int j, int n) {
      ranges([&](int first, int last) {
        t_.scores(data_.k.data() + j * kD, kD, qt.data(), kD, n, rows_, first, last, s.data() + j * w_, max.data());
        t_.scores(data_.v.data() + j * kD, kD, dot.data(), kD, n, rows_, first, last, ds.data() + j * w_, max.data());
        t_.backward_softmax(0.2f, n, first, last, lse.data(), delta.data(), s.data() + j * w_, ds.data() + j * w_);
      });
    });
    keep(s, kKeys), keep(ds, kKeys);
    t_.column_dots(qt.data(), dot.data(), kD, dots.data());
    keep(dots, 1);
  }

  void bf16() {
    const Bf16TileKernels& b = *t_.bf16;
    Halves q(data_.q.size()), k(at(kKeys * (kD + 1))), v(at(kKeys * kDv)), v_pairs(at((kKeys + 1) * kDv));
    for (std::size_t e = 0; e < q.size(); ++e) q[e] = narrow<qkv::bf16>(data_.q[e]).bits;
    for (std::size_t e = 0; e < k.size(); ++e) k[e] = narrow<qkv::bf16>(data_.k[e]).bits;
    for (std::size_t e = 0; e < v.size(); ++e) v[e] = narrow<qkv::bf16>(data_.v[e]).bits;
    for (int j = 0; j < kKeys; ++j)
      for (int c = 0; c < kDv; ++c) v_pairs[at((j / 2 * kDv + c) * 2 + j % 2)] = v[at(j * kDv + c)];
    constexpr int kDPairs = (kD + 1) / 2, kKeyPairs = (kKeys + 1) / 2;
    Halves qt(at(2 * kDPairs * w_)), p(at(2 * kKeyPairs * w_)), rounded(at(kKeys * w_));
    b.transpose_pairs(q.data() + r0_ * 2 * kDPairs, 2 * kDPairs, rows_, kDPairs, qt.data());
    Floats s(at(kKeys * w_)), max(at(w_), -kInf), m(at(w_), 1.5f), l(at(w_), 0), ot(at(kDv * w_), 0);
    ranges([&](int first, int last) {
      b.scores(k.data(), kD + 1, qt.data(), kDPairs, kKeys, rows_, first, last, s.data(), max.data());
      b.exponentials(1.1f, kKeys, first, last, m.data(), l.data(), s.data(), p.data());
      b.accumulate(p.data(), v_pairs.data(), kDv, kDv, kKeyPairs, rows_, first, last, true, ot.data());
      b.round(s.data(), kKeys, first, last, rounded.data(), nullptr);
    });
    keep(s, kKeys), keep(max, 1), keep(l, 1), keep(ot, kDv);
    if (b.accumulate_rows) {  // the same sums from unpaired values
      const Floats from_pairs = ot;
      b.accumulate_rows(p.data(), v.data(), kDv, kDv, kKeys, rows_, true, ot.data());
      for (std::int64_t e = 0; e < kDv * w_; ++e) {
        EXPECT_TRUE(e % w_ >= rows_ || same_bits(ot[at(e)], from_pairs[at(e)])) << "dimension " << e / w_;
      }
    }
    Floats wide(rounded.size());
    for (std::size_t e = 0; e < wide.size(); ++e) wide[e] = from_bf16(rounded[e]);
    keep(wide, kKeys);
  }

  const Floats& kept() const { return kept_; }  // [numbers][rows]
  int rows() const { return rows_; }

 private:
  void keep(const Floats& x, int n) {
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < rows_; ++i) kept_.push_back(x[at(j * w_ + i)]);
  }
  void rows_out(const Floats& ot) {
    const Floats factor = column(data_.slopes);
    Floats out(at(rows_ * kDv)), back(at(kDv * w_));
    t_.transpose_out(ot.data(), rows_, kDv, factor.data(), out.data(), kDv);
    t_.transpose_in(out.data(), kDv, rows_, kDv, back.data());
    keep(back, kDv);
  }

  const Data& data_;
  const Way& way_;
  const TileKernels& t_;
  int w_, r0_, rows_;
  Floats kept_;
};

// The recorded results of all queries, [numbers][kQueries].
template <class Work>
Floats of_all_queries(const Data& data, const Way& way, const Work& work) {
  Floats all;
  for (int r0 = 0; r0 < kQueries; r0 += way.tile->width) {
    Tile tile(data, way, r0);
    work(tile);
    const auto numbers = static_cast<int>(tile.kept().size()) / tile.rows();
    all.resize(at(numbers * kQueries));
    for (int x = 0; x < numbers; ++x)
      for (int i = 0; i < tile.rows(); ++i) all[at(x * kQueries + r0 + i)] = tile.kept()[at(x * tile.rows() + i)];
  }
  return all;
}

template <class Work>
void expect_same_bits(const KernelTable& table, bool key_by_key_too, const Work& work) {
  const Data data;
  Floats first;
  for (int x = 0; x < table.tile_count; ++x)
    for (const bool vector_by_vector : {false, true})
      for (const bool key_by_key : {false, true}) {
        if (key_by_key && !key_by_key_too) continue;
        SCOPED_TRACE(std::to_string(table.tiles[x].width) + " queries, vector by vector " +
                     std::to_string(vector_by_vector) + ", key by key " + std::to_string(key_by_key));
        const Floats found = of_all_queries(data, Way{&table.tiles[x], vector_by_vector, key_by_key}, work);
        if (first.empty()) first = found;
        ASSERT_EQ(found.size(), first.size());
        for (std::size_t e = 0; e < found.size(); ++e)
          ASSERT_TRUE(same(found[e], first[e]))
              << "number " << e / kQueries << " of query " << e % kQueries << ": " << first[e] << " and " << found[e];
      }
  int numbers = 0;  // guards against an empty comparison
  for (const float x : first) numbers += std::isfinite(x) && x != 0;
  EXPECT_GT(numbers, static_cast<int>(first.size()) / 3);
}

TEST(Widths, ForwardBitsAreTheSame) {
  for (const KernelTable* table : available_tables()) {
    SCOPED_TRACE(std::string(table->name));
    expect_same_bits(*table, true, [](Tile& tile) { tile.forward(); });
  }
}

TEST(Widths, BackwardBitsAreTheSame) {
  for (const KernelTable* table : available_tables()) {
    SCOPED_TRACE(std::string(table->name));
    expect_same_bits(*table, true, [](Tile& tile) { tile.backward(); });
  }
}

TEST(Widths, Bf16BitsAreTheSame) {
  for (const KernelTable* table : available_tables()) {
    SCOPED_TRACE(std::string(table->name));
    if (table->tiles[0].bf16) expect_same_bits(*table, false, [](Tile& tile) { tile.bf16(); });
  }
}

// Sums over queries: one chain that continues from tile to tile.
TEST(Widths, OuterBitsAreTheSame) {
  constexpr int kCols = 48;
  for (const KernelTable* table : available_tables()) {
    SCOPED_TRACE(std::string(table->name));
    const Data data;
    Numbers numbers(41);
    Floats x(kQueries * kCols), first;
    for (float& value : x) value = numbers.normal();
    for (int w = 0; w < table->tile_count; ++w) {
      const TileKernels& tile = table->tiles[w];
      Floats c(kKeys * kCols, 0.5f);
      const Way way{&tile, false, false};
      for (int r0 = 0; r0 < kQueries; r0 += tile.width) {
        const Tile part(data, way, r0);
        const Floats p = part.columns(data.bias), zeroed = [&] {
          Floats y = p;
          for (float& value : y) value = std::isfinite(value) ? value : 0.0f;
          return y;
        }();
        tile.outer(zeroed.data(), x.data() + r0 * kCols, kCols, kCols, kKeys, part.rows(), c.data(), kCols);
      }
      if (first.empty()) first = c;
      for (std::size_t e = 0; e < c.size(); ++e) ASSERT_TRUE(same_bits(c[e], first[e])) << tile.width << " at " << e;
    }
  }
}

TEST(TileFor, IsTheSmallestThatHoldsTheRows) {
  for (const KernelTable* table : available_tables()) {
    int widest = 0;
    for (int i = 0; i < table->tile_count; ++i) {
      EXPECT_GT(table->tiles[i].width, widest);
      EXPECT_EQ(table->tiles[i].width % table->tiles[i].lanes, 0);
      EXPECT_LE(table->tiles[i].width / table->tiles[i].lanes, 3);
      EXPECT_EQ(16 % table->tiles[i].lanes, 0);  // attention pads the columns of `outer` to 16
      widest = table->tiles[i].width;
    }
    EXPECT_LE(widest, kMaxWidth);
    for (std::int64_t rows = 0; rows <= 2 * kMaxWidth; ++rows) {
      const TileKernels& tile = tile_for(*table, rows);
      EXPECT_TRUE(tile.width >= rows || tile.width == widest);
      for (int i = 0; i < table->tile_count; ++i)
        EXPECT_TRUE(table->tiles[i].width < rows || table->tiles[i].width >= tile.width);
    }
  }
}

}  // namespace
}  // namespace qkv::test
