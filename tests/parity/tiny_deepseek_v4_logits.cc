// The formulas, in double precision, for whole sequences.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tests/parity/tiny_deepseek_v4.h"

namespace millrace {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Dot(const double* a, const double* b, size_t size) {
  return std::inner_product(a, a + size, b, 0.0);
}

// What makes the mean of the squares one.
double InverseRms(const double* x, size_t size, double eps) {
  return 1 / std::sqrt(Dot(x, x, size) / static_cast<double>(size) + eps);
}

size_t Size(int32_t n) { return static_cast<size_t>(n); }

}  // namespace

TinyDeepSeekV4::Rows TinyDeepSeekV4::Project(const std::string& name, const Rows& x) const {
  const WrittenTensor& w = tensors_.at(name + ".weight");
  const size_t outputs = static_cast<size_t>(w.shape[0]);
  const size_t inputs = static_cast<size_t>(w.shape[1]);
  Rows y;
  for (const Row& row : x) {
    Row& out = y.emplace_back(outputs, 0.0);
    for (size_t o = 0; o < outputs; ++o) {
      for (size_t i = 0; i < inputs; ++i) {
        out[o] += row[i] * static_cast<double>(w.values[o * inputs + i]);
      }
    }
  }
  return y;
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::Norm(const std::string& name, const Rows& x) const {
  const std::vector<float>& weight = Values(name + ".weight");
  Rows y = x;
  for (Row& row : y) {
    const double scale = InverseRms(row.data(), row.size(), shape_.eps);
    for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * static_cast<double>(weight[i]);
  }
  return y;
}

TinyDeepSeekV4::Row TinyDeepSeekV4::Frequencies(bool compressed) const {
  const double dim = shape_.rope_dim;
  const double theta = compressed ? shape_.compress_theta : shape_.rope_theta;
  // Turns over the original context: kept from 4 on, divided by the factor up to 1.
  const auto index = [&](double turns) {
    return dim * std::log(shape_.yarn_context / (turns * 2 * M_PI)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(index(4)), 0.0);
  const double high = std::min(std::ceil(index(1)), dim - 1);
  Row frequencies;
  for (int32_t i = 0; i < shape_.rope_dim / 2; ++i) {
    const double plain = std::pow(theta, -2.0 * i / dim);
    const double ramp = compressed ? std::clamp((i - low) / (high - low), 0.0, 1.0) : 0.0;
    frequencies.push_back(plain / shape_.yarn_factor * ramp + plain * (1 - ramp));
  }
  return frequencies;
}

void TinyDeepSeekV4::Rotate(Row& row, size_t head_dim, double position,
                            const Row& frequencies) const {
  for (size_t head = 0; head < row.size(); head += head_dim) {
    double* pairs = row.data() + head + head_dim - 2 * frequencies.size();
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = position * frequencies[i];
      const double a = pairs[2 * i];
      const double b = pairs[2 * i + 1];
      pairs[2 * i] = a * std::cos(angle) - b * std::sin(angle);
      pairs[2 * i + 1] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

TinyDeepSeekV4::Mix TinyDeepSeekV4::MixIn(const std::string& prefix,
                                          const std::vector<Rows>& streams) const {
  const size_t n = Size(shape_.streams);
  const size_t inputs = n * Size(shape_.hidden);
  const std::vector<float>& fn = Values(prefix + "_fn");
  const std::vector<float>& base = Values(prefix + "_base");
  const std::vector<float>& scale = Values(prefix + "_scale");
  Mix mix;
  for (const Rows& token : streams) {
    Row flat;
    for (const Row& stream : token) flat.insert(flat.end(), stream.begin(), stream.end());
    const double norm = InverseRms(flat.data(), inputs, shape_.eps);
    const auto m = [&](size_t row, size_t kind) {
      double sum = 0;
      for (size_t i = 0; i < inputs; ++i)
        sum += flat[i] * static_cast<double>(fn[row * inputs + i]);
      return sum * norm * static_cast<double>(scale[kind]) + static_cast<double>(base[row]);
    };
    Row& x = mix.x.emplace_back(Size(shape_.hidden), 0.0);
    Row& post = mix.post.emplace_back();
    Rows& comb = mix.comb.emplace_back(n, Row(n));
    for (size_t j = 0; j < n; ++j) {
      const double pre = Sigmoid(m(j, 0)) + shape_.hc_eps;
      for (size_t i = 0; i < x.size(); ++i) x[i] += pre * token[j][i];
      post.push_back(2 * Sigmoid(m(n + j, 1)));
      double total = 0;
      for (size_t k = 0; k < n; ++k) total += comb[j][k] = std::exp(m(2 * n + j * n + k, 2));
      for (double& c : comb[j]) c = c / total + shape_.hc_eps;
    }
    for (int32_t iteration = 0; iteration < shape_.sinkhorn_iters; ++iteration) {
      for (size_t j = 0; iteration > 0 && j < n; ++j) {
        const double sum = std::accumulate(comb[j].begin(), comb[j].end(), shape_.hc_eps);
        for (double& c : comb[j]) c /= sum;
      }
      for (size_t k = 0; k < n; ++k) {
        double sum = shape_.hc_eps;
        for (size_t j = 0; j < n; ++j) sum += comb[j][k];
        for (size_t j = 0; j < n; ++j) comb[j][k] /= sum;
      }
    }
  }
  return mix;
}

void TinyDeepSeekV4::MixOut(const Mix& mix, const Rows& out, std::vector<Rows>& streams) const {
  for (size_t t = 0; t < streams.size(); ++t) {
    const Rows old = streams[t];
    for (size_t k = 0; k < old.size(); ++k) {
      for (size_t i = 0; i < old[k].size(); ++i) {
        streams[t][k][i] = mix.post[t][k] * out[t][i];
        for (size_t j = 0; j < old.size(); ++j) streams[t][k][i] += mix.comb[t][j][k] * old[j][i];
      }
    }
  }
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::Collapse(const std::vector<Rows>& streams) const {
  const std::vector<float>& fn = Values("hc_head_fn");
  const std::vector<float>& base = Values("hc_head_base");
  const double scale = static_cast<double>(Values("hc_head_scale")[0]);
  Rows y;
  for (const Rows& token : streams) {
    Row flat;
    for (const Row& stream : token) flat.insert(flat.end(), stream.begin(), stream.end());
    const double norm = InverseRms(flat.data(), flat.size(), shape_.eps);
    Row& out = y.emplace_back(Size(shape_.hidden), 0.0);
    for (size_t j = 0; j < token.size(); ++j) {
      double m = 0;
      for (size_t i = 0; i < flat.size(); ++i) {
        m += flat[i] * static_cast<double>(fn[j * flat.size() + i]);
      }
      const double weight =
          Sigmoid(m * norm * scale + static_cast<double>(base[j])) + shape_.hc_eps;
      for (size_t i = 0; i < out.size(); ++i) out[i] += weight * token[j][i];
    }
  }
  return y;
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::Compress(const Compressor& c, const Rows& x,
                                              const Row& frequencies) const {
  const bool overlap = c.ratio == 4;
  const size_t projected = overlap ? 2 * c.dim : c.dim;
  const Rows kv = Project(c.prefix + ".wkv", x);
  Rows score = Project(c.prefix + ".wgate", x);
  const std::vector<float>& ape = Values(c.prefix + ".ape");
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t i = 0; i < projected; ++i) {
      score[t][i] += static_cast<double>(ape[t % c.ratio * projected + i]);
    }
  }
  Rows entries;
  for (size_t s = 0; (s + 1) * c.ratio <= x.size(); ++s) {
    Row& entry = entries.emplace_back(c.dim, 0.0);
    for (size_t i = 0; i < c.dim; ++i) {
      double total = 0;
      const auto pool = [&](size_t first, size_t channel) {
        for (size_t t = first; t < first + c.ratio; ++t) {
          const double weight = std::exp(score[t][channel]);
          total += weight;
          entry[i] += weight * kv[t][channel];
        }
      };
      if (overlap && s > 0) pool((s - 1) * c.ratio, i);
      pool(s * c.ratio, overlap ? c.dim + i : i);
      entry[i] /= total;
    }
  }
  entries = Norm(c.prefix + ".norm", entries);
  for (size_t s = 0; s < entries.size(); ++s) {
    Rotate(entries[s], c.dim, static_cast<double>(s * c.ratio), frequencies);
  }
  return entries;
}

void TinyDeepSeekV4::NoteMargin(const Row& scores, size_t taken) const {
  if (taken >= scores.size()) return;
  Row sorted = scores;
  std::sort(sorted.rbegin(), sorted.rend());
  // Equal scores are exactly equal everywhere: no head's product was above zero.
  const double margin = sorted[taken - 1] - sorted[taken];
  if (margin > 0) smallest_margin_ = std::min(smallest_margin_, margin);
}

std::vector<std::vector<size_t>> TinyDeepSeekV4::Select(const std::string& prefix, const Rows& x,
                                                        const Rows& qr,
                                                        const Row& frequencies) const {
  const size_t dim = Size(shape_.index_dim);
  const Rows keys = Compress({prefix + ".compressor", 4, dim}, x, frequencies);
  const Rows weights = Project(prefix + ".weights_proj", x);
  Rows q = Project(prefix + ".wq_b", qr);
  std::vector<std::vector<size_t>> selected;
  for (size_t t = 0; t < x.size(); ++t) {
    Rotate(q[t], dim, static_cast<double>(t), frequencies);
    const size_t visible = (t + 1) / 4;
    Row scores(visible, 0.0);
    for (size_t s = 0; s < visible; ++s) {
      for (size_t h = 0; h < weights[t].size(); ++h) {
        const double dot = Dot(q[t].data() + h * dim, keys[s].data(), dim);
        scores[s] += std::max(0.0, dot) * weights[t][h];
      }
    }
    std::vector<size_t>& order = selected.emplace_back(visible);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    NoteMargin(scores, Size(shape_.index_topk));
    order.resize(std::min(visible, Size(shape_.index_topk)));
  }
  return selected;
}

TinyDeepSeekV4::Row TinyDeepSeekV4::AttendHead(const Rows& keys, const double* q,
                                               double sink) const {
  const size_t dim = Size(shape_.head_dim);
  Row out(dim, 0.0);
  double total = std::exp(sink);
  for (const Row& key : keys) {
    const double weight = std::exp(Dot(q, key.data(), dim) / std::sqrt(static_cast<double>(dim)));
    total += weight;
    for (size_t i = 0; i < dim; ++i) out[i] += weight * key[i];
  }
  for (double& value : out) value /= total;
  return out;
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::Attend(int32_t layer, const Rows& x) const {
  const std::string prefix = "layers." + std::to_string(layer) + ".attn";
  const size_t ratio = Size(shape_.ratios[Size(layer)]);
  const size_t dim = Size(shape_.head_dim);
  const Row frequencies = Frequencies(ratio > 0);
  const Rows qr = Norm(prefix + ".q_norm", Project(prefix + ".wq_a", x));
  Rows q = Project(prefix + ".wq_b", qr);
  Rows kv = Norm(prefix + ".kv_norm", Project(prefix + ".wkv", x));
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t head = 0; head < q[t].size(); head += dim) {
      const double scale = InverseRms(q[t].data() + head, dim, shape_.eps);
      for (size_t i = 0; i < dim; ++i) q[t][head + i] *= scale;
    }
    Rotate(q[t], dim, static_cast<double>(t), frequencies);
    Rotate(kv[t], dim, static_cast<double>(t), frequencies);
  }
  Rows entries;
  if (ratio > 0) entries = Compress({prefix + ".compressor", ratio, dim}, x, frequencies);
  std::vector<std::vector<size_t>> selected;
  if (ratio == 4) selected = Select(prefix + ".indexer", x, qr, frequencies);

  Rows out;
  for (size_t t = 0; t < x.size(); ++t) {
    const size_t first = t + 1 > Size(shape_.window) ? t + 1 - Size(shape_.window) : 0;
    Rows keys(kv.begin() + static_cast<std::ptrdiff_t>(first),
              kv.begin() + static_cast<std::ptrdiff_t>(t) + 1);
    if (ratio == 4) {
      for (const size_t s : selected[t]) keys.push_back(entries[s]);
    } else {
      for (size_t s = 0; ratio > 0 && s < (t + 1) / ratio; ++s) keys.push_back(entries[s]);
    }
    Row& row = out.emplace_back();
    for (size_t h = 0; h < Size(shape_.heads); ++h) {
      const Row one = AttendHead(keys, q[t].data() + h * dim,
                                 static_cast<double>(Values(prefix + ".attn_sink")[h]));
      row.insert(row.end(), one.begin(), one.end());
    }
    Rotate(row, dim, -static_cast<double>(t), frequencies);
  }
  return ProjectGroups(prefix, out);
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::ProjectGroups(const std::string& prefix,
                                                   const Rows& heads) const {
  const std::vector<float>& wo_a = Values(prefix + ".wo_a.weight");
  const size_t rank = Size(shape_.o_rank);
  const size_t inputs = Size(shape_.heads / shape_.o_groups * shape_.head_dim);
  Rows grouped;
  for (const Row& row : heads) {
    Row& out = grouped.emplace_back();
    for (size_t o = 0; o < Size(shape_.o_groups) * rank; ++o) {
      double sum = 0;
      for (size_t i = 0; i < inputs; ++i) {
        sum += row[o / rank * inputs + i] * static_cast<double>(wo_a[o * inputs + i]);
      }
      out.push_back(sum);
    }
  }
  return Project(prefix + ".wo_b", grouped);
}

std::vector<std::vector<std::pair<size_t, double>>> TinyDeepSeekV4::Route(
    int32_t layer, const Rows& x, const std::vector<int32_t>& tokens) const {
  const std::string prefix = "layers." + std::to_string(layer) + ".ffn.gate";
  const size_t chosen = Size(shape_.chosen);
  Rows scores = Project(prefix, x);
  std::vector<std::vector<std::pair<size_t, double>>> routes;
  for (size_t t = 0; t < x.size(); ++t) {
    for (double& score : scores[t]) score = std::sqrt(std::log1p(std::exp(score)));
    std::vector<size_t> experts(scores[t].size());
    std::iota(experts.begin(), experts.end(), size_t{0});
    if (layer < shape_.hash_layers) {
      const auto row = Values(prefix + ".tid2eid").begin() + int64_t{tokens[t]} * shape_.chosen;
      std::transform(row, row + shape_.chosen, experts.begin(),
                     [](float e) { return static_cast<size_t>(e); });
    } else {
      Row biased = scores[t];
      for (size_t e = 0; e < biased.size(); ++e) {
        biased[e] += static_cast<double>(Values(prefix + ".bias")[e]);
      }
      NoteMargin(biased, chosen);
      std::stable_sort(experts.begin(), experts.end(),
                       [&](size_t a, size_t b) { return biased[a] > biased[b]; });
    }
    double total = 0;
    for (size_t k = 0; k < chosen; ++k) total += scores[t][experts[k]];
    auto& route = routes.emplace_back();
    for (size_t k = 0; k < chosen; ++k) {
      route.emplace_back(experts[k], scores[t][experts[k]] / total * shape_.routed_scaling);
    }
  }
  return routes;
}

TinyDeepSeekV4::Row TinyDeepSeekV4::Expert(const std::string& prefix, const Row& x) const {
  Rows gate = Project(prefix + ".w1", {x});
  const Rows up = Project(prefix + ".w3", {x});
  const double limit = shape_.swiglu_limit;
  for (size_t i = 0; i < gate[0].size(); ++i) {
    const double g = std::min(gate[0][i], limit);
    gate[0][i] = g * Sigmoid(g) * std::clamp(up[0][i], -limit, limit);
  }
  return Project(prefix + ".w2", gate)[0];
}

TinyDeepSeekV4::Rows TinyDeepSeekV4::Mixture(int32_t layer, const Rows& x,
                                             const std::vector<int32_t>& tokens) const {
  const std::string prefix = "layers." + std::to_string(layer) + ".ffn";
  const auto routes = Route(layer, x, tokens);
  Rows out;
  for (size_t t = 0; t < x.size(); ++t) {
    Row& row = out.emplace_back(Expert(prefix + ".shared_experts", x[t]));
    for (const auto& [expert, weight] : routes[t]) {
      const Row part = Expert(prefix + ".experts." + std::to_string(expert), x[t]);
      for (size_t i = 0; i < row.size(); ++i) row[i] += weight * part[i];
    }
  }
  return out;
}

std::vector<std::vector<double>> TinyDeepSeekV4::Logits(const std::vector<int32_t>& tokens) const {
  std::vector<Rows> streams;
  for (const int32_t token : tokens) {
    const auto row = Values("embed.weight").begin() + int64_t{token} * shape_.hidden;
    streams.emplace_back(Size(shape_.streams), Row(row, row + shape_.hidden));
  }
  for (int32_t i = 0; i < static_cast<int32_t>(shape_.ratios.size()); ++i) {
    const std::string layer = "layers." + std::to_string(i);
    Mix mix = MixIn(layer + ".hc_attn", streams);
    MixOut(mix, Attend(i, Norm(layer + ".attn_norm", mix.x)), streams);
    mix = MixIn(layer + ".hc_ffn", streams);
    MixOut(mix, Mixture(i, Norm(layer + ".ffn_norm", mix.x), tokens), streams);
  }
  return Project("head", Norm("norm", Collapse(streams)));
}

}  // namespace millrace
