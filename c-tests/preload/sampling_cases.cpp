// What each sampler does, on small cases that were worked out by hand from the samplers'
// definitions, and on queues of truncating samplers that a naive function follows. The same source
// holds for the built-in samplers and for ours.
//
//   sampling_cases MODEL        (the model for its vocabulary only)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

std::string subject; // What is being tried, for the message of a failed check.
size_t      n_checks = 0;

void check_that(bool holds, const char * condition, int line) {
    n_checks++;
    if (!holds) {
        std::fprintf(stderr, "sampling_cases.cpp:%d: %s: failed: %s\n", line, subject.c_str(),
                     condition);
        std::exit(1);
    }
}
#define CHECK(condition) check_that((condition), #condition, __LINE__)

struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};

// A sampler that has the name it should have.
class sampler {
  public:
    sampler(const char * name, llama_sampler * made) : made(made) {
        subject = name;
        CHECK(made != nullptr);
        CHECK(std::string(llama_sampler_name(made)) == name);
    }
    operator llama_sampler *() const { return made.get(); }
    void accept(const std::vector<llama_token> & tokens) const {
        for (const llama_token token : tokens) {
            llama_sampler_accept(made.get(), token);
        }
    }

  private:
    std::unique_ptr<llama_sampler, sampler_free> made;
};

class candidates {
  public:
    // Ids count from zero up.
    static candidates of_logits(const std::vector<float> & logits) {
        candidates made;
        for (size_t i = 0; i < logits.size(); i++) {
            made.memory.push_back({ static_cast<llama_token>(i), logits[i], 0.0f });
        }
        made.array = { made.memory.data(), made.memory.size(), -1, false };
        return made;
    }
    static candidates of_probabilities(const std::vector<double> & probabilities) {
        std::vector<float> logits;
        for (const double p : probabilities) {
            logits.push_back(static_cast<float>(std::log(p)));
        }
        return of_logits(logits);
    }
    candidates with_ids(const std::vector<llama_token> & ids) && {
        for (size_t i = 0; i < ids.size(); i++) {
            memory[i].id = ids[i];
        }
        return std::move(*this);
    }

    // The array points into the memory, which moves along but would not be copied along.
    candidates(candidates &&)             = default;
    candidates(const candidates &)        = delete;
    candidates & operator=(candidates &&) = delete;

    candidates & apply(llama_sampler * with) {
        llama_sampler_apply(with, &array);
        return *this;
    }

    size_t size() const { return array.size; }
    bool   sorted() const { return array.sorted; }
    llama_token first() const { return array.data[0].id; }
    llama_token last() const { return array.data[array.size - 1].id; }
    llama_token selected() const {
        CHECK(array.selected >= 0 && static_cast<size_t>(array.selected) < array.size);
        return array.data[array.selected].id;
    }
    std::vector<llama_token> ids() const {
        std::vector<llama_token> ids;
        for (size_t i = 0; i < array.size; i++) {
            ids.push_back(array.data[i].id);
        }
        return ids;
    }
    std::vector<llama_token> sorted_ids() const {
        std::vector<llama_token> all = ids();
        std::sort(all.begin(), all.end());
        return all;
    }
    const llama_token_data & of_id(llama_token id) const {
        for (size_t i = 0; i < array.size; i++) {
            if (array.data[i].id == id) {
                return array.data[i];
            }
        }
        CHECK(!"the candidate is there");
        std::abort();
    }

  private:
    candidates() = default;

    std::vector<llama_token_data> memory;
    llama_token_data_array        array = {};
};

using ids = std::vector<llama_token>;

bool near(double value, double expected) {
    return value == expected ||
           std::fabs(value - expected) <= 1e-5 * std::max(1.0, std::fabs(expected));
}

void check_logits(const candidates & of, const std::vector<double> & expected_by_id) {
    for (size_t id = 0; id < expected_by_id.size(); id++) {
        CHECK(near(of.of_id(static_cast<llama_token>(id)).logit, expected_by_id[id]));
    }
}

// What a sampler, made for this alone, leaves of such candidates.
candidates left_of(const std::vector<double> & probabilities, const char * name,
                   llama_sampler * made) {
    candidates of = candidates::of_probabilities(probabilities);
    of.apply(sampler(name, made));
    return of;
}

// The samplers that only choose.

void greedy() {
    const sampler smpl("greedy", llama_sampler_init_greedy());
    CHECK(candidates::of_logits({ 0.5f, 2.0f, 1.0f }).apply(smpl).selected() == 1);
    CHECK(candidates::of_logits({ -3.0f, -2.0f, -1.0f }).apply(smpl).selected() == 2);
    CHECK(candidates::of_logits({ minus_infinity, -7.0f }).apply(smpl).selected() == 1);
}

void dist() {
    std::vector<int> counts(4);
    const sampler    smpl("dist", llama_sampler_init_dist(7));
    constexpr int    n = 20000;
    for (int i = 0; i < n; i++) {
        candidates of = candidates::of_probabilities({ 0.1, 0.2, 0.3, 0.4 });
        counts[static_cast<size_t>(of.apply(smpl).selected())]++;
        CHECK(of.size() == 4 && near(of.of_id(3).p, 0.4));
    }
    for (size_t id = 0; id < counts.size(); id++) {
        const double p = 0.1 * static_cast<double>(id + 1);
        // Five standard deviations.
        CHECK(std::fabs(counts[id] - n * p) < 5.0 * std::sqrt(n * p * (1.0 - p)));
    }
}

// What equally probable candidates' draw must give: one uniform double per draw, taken from
// std::mt19937.
llama_token uniform_draw(std::mt19937 & generator, size_t n) {
    const double u = std::uniform_real_distribution<double>(0.0, 1.0)(generator);
    return static_cast<llama_token>(u * static_cast<double>(n));
}

void dist_takes_a_number_for_a_single_candidate() {
    const std::vector<float> equal(1000, 0.25f);
    for (const uint32_t seed : { 1u, 42u, 1234567u }) {
        const sampler one_then_many("dist", llama_sampler_init_dist(seed));
        const sampler many_then_many("dist", llama_sampler_init_dist(seed));
        std::mt19937  generator(seed);
        CHECK(candidates::of_logits({ 3.0f }).apply(one_then_many).selected() == 0);
        CHECK(candidates::of_logits(equal).apply(many_then_many).selected() ==
              uniform_draw(generator, equal.size()));
        const llama_token second = uniform_draw(generator, equal.size());
        CHECK(candidates::of_logits(equal).apply(many_then_many).selected() == second);
        CHECK(candidates::of_logits(equal).apply(one_then_many).selected() == second);
    }
}

void mirostat_v2() {
    // Surprisals: 1, 2, 3 and 3 bits. The aim starts at 2 tau.
    const std::vector<double> halves = { 0.5, 0.25, 0.125, 0.125 };
    {
        const sampler smpl("mirostat-v2", llama_sampler_init_mirostat_v2(1, 0.75f, 1.0f));
        candidates    of = candidates::of_probabilities(halves);
        CHECK(of.apply(smpl).selected() == 0 && of.size() == 1); // 1.5 bits admit the first alone,
        candidates next = candidates::of_probabilities(halves);
        next.apply(smpl); // whose surprisal is then 0: the aim goes up by tau, to 2.25.
        CHECK((next.ids() == ids{ 0, 1 }));
        CHECK(near(next.of_id(0).p, 2.0 / 3.0));
    }
    {
        const sampler smpl("mirostat-v2", llama_sampler_init_mirostat_v2(1, 2.0f, 0.0f));
        candidates    of = candidates::of_probabilities(halves);
        CHECK(of.apply(smpl).size() == 4);
    }
    {
        const sampler smpl("mirostat-v2", llama_sampler_init_mirostat_v2(1, 0.1f, 0.0f));
        candidates    of = candidates::of_probabilities(halves);
        CHECK(of.apply(smpl).size() == 1 && of.selected() == 0); // Never nothing.
    }
}

void mirostat() {
    // Zipf's law with exponent 1.5, so the estimate of it is exact, and k = (0.5 * 4^tau / (1 -
    // 8^-0.5))^(1 / 1.5).
    std::vector<float> zipf;
    for (int rank = 1; rank <= 8; rank++) {
        zipf.push_back(static_cast<float>(-1.5 * std::log(rank)));
    }
    struct {
        float  tau;
        size_t k;
    } const cases[] = { { 1.0f, 2 }, { 2.0f, 5 }, { 4.0f, 8 }, { 0.1f, 1 } };
    // k is 2.12, 5.35, 33.98 and 0.92.
    for (const auto & one : cases) {
        const sampler smpl("mirostat", llama_sampler_init_mirostat(8, 1, one.tau, 0.1f, 100));
        candidates    of = candidates::of_logits(zipf);
        of.apply(smpl);
        CHECK(of.size() == one.k && of.first() == 0);
        CHECK(static_cast<size_t>(of.selected()) < one.k);
    }
}

void adaptive_p() {
    {
        // 5 - 10 d^2 / (1 + d) at the distance d = |p - target| / 0.3: 0, 2/3 and 1.
        const sampler smpl("adaptive-p", llama_sampler_init_adaptive_p(0.5f, 0.9f, 1));
        candidates    of = candidates::of_probabilities({ 0.5, 0.3, 0.2 });
        of.apply(smpl);
        check_logits(of, { 5.0, 7.0 / 3.0, 0.0 });
        const double sum = std::exp(5.0) + std::exp(7.0 / 3.0) + 1.0;
        CHECK(near(of.of_id(0).p, std::exp(5.0) / sum) && near(of.of_id(2).p, 1.0 / sum));
        CHECK(of.selected() >= 0);
    }
    {
        // A negative target: a plain draw.
        const sampler smpl("adaptive-p", llama_sampler_init_adaptive_p(-1.0f, 0.9f, 1));
        candidates    of = candidates::of_logits({ 0.0f, 1.0f, 2.0f });
        of.apply(smpl);
        check_logits(of, { 0.0, 1.0, 2.0 });
        CHECK(of.selected() >= 0);
    }
}

// The samplers that cut.

void top_k() {
    const std::vector<double> p = { 0.2, 0.1, 0.4, 0.3 };
    CHECK((left_of(p, "top-k", llama_sampler_init_top_k(1)).ids() == ids{ 2 }));
    CHECK((left_of(p, "top-k", llama_sampler_init_top_k(3)).ids() == ids{ 2, 3, 0 }));
    CHECK((left_of(p, "top-k", llama_sampler_init_top_k(9)).ids() == ids{ 2, 3, 0, 1 }));
    CHECK((left_of(p, "?top-k", llama_sampler_init_top_k(0)).ids() == ids{ 0, 1, 2, 3 }));
}

void top_p() {
    const std::vector<double> p = { 0.05, 0.5, 0.15, 0.3 };
    CHECK((left_of(p, "top-p", llama_sampler_init_top_p(0.0f, 0)).ids() == ids{ 1 }));
    CHECK((left_of(p, "top-p", llama_sampler_init_top_p(0.45f, 0)).ids() == ids{ 1 }));
    CHECK((left_of(p, "top-p", llama_sampler_init_top_p(0.7f, 0)).ids() == ids{ 1, 3 }));
    CHECK((left_of(p, "top-p", llama_sampler_init_top_p(0.7f, 3)).ids() == ids{ 1, 3, 2 }));
    CHECK((left_of(p, "top-p", llama_sampler_init_top_p(0.99f, 0)).ids() == ids{ 1, 3, 2, 0 }));
    CHECK((left_of(p, "?top-p", llama_sampler_init_top_p(1.0f, 0)).ids() == ids{ 0, 1, 2, 3 }));
}

void min_p() {
    // Relative to the largest: 0.25, 0.5, 0.75 and 1.
    const std::vector<double> p = { 0.1, 0.2, 0.3, 0.4 };
    CHECK((left_of(p, "?min-p", llama_sampler_init_min_p(0.0f, 0)).sorted_ids() ==
           ids{ 0, 1, 2, 3 }));
    CHECK((left_of(p, "min-p", llama_sampler_init_min_p(0.24f, 0)).sorted_ids() ==
           ids{ 0, 1, 2, 3 }));
    CHECK((left_of(p, "min-p", llama_sampler_init_min_p(0.26f, 0)).sorted_ids() == ids{ 1, 2, 3 }));
    CHECK((left_of(p, "min-p", llama_sampler_init_min_p(0.74f, 0)).sorted_ids() == ids{ 2, 3 }));
    CHECK((left_of(p, "min-p", llama_sampler_init_min_p(1.0f, 0)).sorted_ids() == ids{ 3 }));
    CHECK((left_of(p, "min-p", llama_sampler_init_min_p(0.76f, 2)).sorted_ids() == ids{ 2, 3 }));
}

void typical() {
    {
        // The entropy is 0.17, the first one's surprisal 0.03, the others' 4.6.
        candidates of = candidates::of_probabilities({ 0.97, 0.01, 0.01, 0.01 });
        CHECK((of.apply(sampler("typical", llama_sampler_init_typical(0.5f, 1))).ids() ==
               ids{ 0 }));
    }
    {
        // The entropy is 1.33: the surprisal 1.61 of the lesser ones is nearer to it than the 0.92
        // of the first.
        candidates of = candidates::of_probabilities({ 0.4, 0.2, 0.2, 0.2 });
        CHECK((of.apply(sampler("typical", llama_sampler_init_typical(0.5f, 1))).sorted_ids() ==
               ids{ 1, 2, 3 }));
    }
    {
        candidates of = candidates::of_probabilities({ 0.4, 0.2, 0.2, 0.2 });
        CHECK(of.apply(sampler("typical", llama_sampler_init_typical(0.5f, 4))).size() == 4);
        candidates same = candidates::of_probabilities({ 0.4, 0.2, 0.2, 0.2 });
        CHECK((same.apply(sampler("?typical", llama_sampler_init_typical(1.0f, 1))).ids() ==
               ids{ 0, 1, 2, 3 }));
    }
}

void top_n_sigma() {
    // The standard deviation is sqrt(1.25) = 1.118.
    const std::vector<float> logits = { 1.0f, 4.0f, 2.0f, 3.0f };
    candidates               one    = candidates::of_logits(logits);
    check_logits(one.apply(sampler("top-n-sigma", llama_sampler_init_top_n_sigma(1.0f))),
                 { minus_infinity, 4.0, minus_infinity, 3.0 });
    candidates two = candidates::of_logits(logits);
    check_logits(two.apply(sampler("top-n-sigma", llama_sampler_init_top_n_sigma(2.0f))),
                 { minus_infinity, 4.0, 2.0, 3.0 });
    candidates all = candidates::of_logits(logits);
    check_logits(all.apply(sampler("?top-n-sigma", llama_sampler_init_top_n_sigma(0.0f))),
                 { 1.0, 4.0, 2.0, 3.0 });
    // What is banned already does not count.
    candidates banned = candidates::of_logits({ 1.0f, 4.0f, 2.0f, 3.0f, minus_infinity });
    check_logits(banned.apply(sampler("top-n-sigma", llama_sampler_init_top_n_sigma(1.0f))),
                 { minus_infinity, 4.0, minus_infinity, 3.0, minus_infinity });
}

void xtc() {
    // Chance 1: of those at or above the threshold, only the least probable stays.
    const std::vector<double> p = { 0.4, 0.3, 0.2, 0.1 };
    CHECK((left_of(p, "xtc", llama_sampler_init_xtc(1.0f, 0.05f, 0, 1)).ids() == ids{ 3 }));
    CHECK((left_of(p, "xtc", llama_sampler_init_xtc(1.0f, 0.15f, 0, 1)).ids() == ids{ 2, 3 }));
    CHECK((left_of(p, "xtc", llama_sampler_init_xtc(1.0f, 0.25f, 0, 1)).ids() == ids{ 1, 2, 3 }));
    CHECK((left_of(p, "xtc", llama_sampler_init_xtc(1.0f, 0.35f, 0, 1)).ids() ==
           ids{ 0, 1, 2, 3 }));
    CHECK((left_of(p, "xtc", llama_sampler_init_xtc(1.0f, 0.15f, 3, 1)).ids() ==
           ids{ 0, 1, 2, 3 }));
    CHECK((left_of(p, "?xtc", llama_sampler_init_xtc(1.0f, 0.6f, 0, 1)).ids() ==
           ids{ 0, 1, 2, 3 }));
    CHECK((left_of(p, "?xtc", llama_sampler_init_xtc(0.0f, 0.1f, 0, 1)).ids() ==
           ids{ 0, 1, 2, 3 }));
}

// The samplers that change logits.

void temp() {
    candidates half = candidates::of_logits({ 1.0f, -2.0f, 4.0f });
    check_logits(half.apply(sampler("temp", llama_sampler_init_temp(2.0f))), { 0.5, -1.0, 2.0 });
    candidates coldest = candidates::of_logits({ 1.0f, -2.0f, 4.0f });
    check_logits(coldest.apply(sampler("temp", llama_sampler_init_temp(0.0f))),
                 { minus_infinity, minus_infinity, 4.0 });
    candidates same = candidates::of_logits({ 1.0f, -2.0f, 4.0f });
    check_logits(same.apply(sampler("?temp", llama_sampler_init_temp(1.0f))), { 1.0, -2.0, 4.0 });
}

void temp_ext() {
    candidates plain = candidates::of_logits({ 1.0f, -2.0f, 4.0f });
    check_logits(plain.apply(sampler("temp-ext", llama_sampler_init_temp_ext(2.0f, 0.0f, 1.0f))),
                 { 0.5, -1.0, 2.0 });
    // One against three: 0.811 bits of one possible. Between 1 - 0.5 and 1 + 0.5 that is a
    // temperature of 1.311, squared before it of 1.158.
    const double entropy = 0.25 * 2.0 + 0.75 * std::log2(4.0 / 3.0);
    for (const double exponent : { 1.0, 2.0 }) {
        const double temperature = 0.5 + std::pow(entropy, exponent);
        candidates   of          = candidates::of_probabilities({ 0.25, 0.75 });
        of.apply(sampler("temp-ext",
                         llama_sampler_init_temp_ext(1.0f, 0.5f, static_cast<float>(exponent))));
        check_logits(of, { std::log(0.25) / temperature, std::log(0.75) / temperature });
    }
    // Equal candidates: the highest temperature.
    candidates equal = candidates::of_logits({ 3.0f, 3.0f, 3.0f });
    check_logits(equal.apply(sampler("temp-ext", llama_sampler_init_temp_ext(1.0f, 0.5f, 1.0f))),
                 { 2.0, 2.0, 2.0 });
}

void penalties() {
    {
        // Token 0 three times, token 1 once: each is made smaller by the factor, then loses 0.5 per
        // occurrence and 0.25 for being there.
        const sampler smpl("penalties", llama_sampler_init_penalties(4, 8, 2.0f, 0.5f, 0.25f));
        smpl.accept({ 0, 0, 1, 0 });
        check_logits(candidates::of_logits({ 4.0f, -1.0f, 3.0f, -3.0f }).apply(smpl),
                     { 0.25, -2.75, 3.0, -3.0 });
    }
    {
        // A window of two.
        const sampler smpl("penalties", llama_sampler_init_penalties(4, 2, 1.0f, 1.0f, 0.0f));
        smpl.accept({ 3, 3, 3, 0, 1 });
        check_logits(candidates::of_logits({ 0.0f, 0.0f, 0.0f, 0.0f }).apply(smpl),
                     { -1.0, -1.0, 0.0, 0.0 });
        llama_sampler_reset(smpl);
        check_logits(candidates::of_logits({ 0.0f, 0.0f, 0.0f, 0.0f }).apply(smpl),
                     { 0.0, 0.0, 0.0, 0.0 });
    }
    {
        // By id, not by place.
        const sampler smpl("penalties", llama_sampler_init_penalties(4, 4, 2.0f, 0.0f, 0.0f));
        smpl.accept({ 1 });
        candidates of = candidates::of_logits({ 4.0f, 2.0f }).with_ids({ 1, 0 });
        check_logits(of.apply(smpl), { 2.0, 2.0 });
    }
    candidates same = candidates::of_logits({ 1.0f, 2.0f });
    check_logits(same.apply(
                     sampler("?penalties", llama_sampler_init_penalties(4, 0, 2.0f, 1.0f, 1.0f))),
                 { 1.0, 2.0 });
}

void logit_bias() {
    const std::vector<llama_logit_bias> biases = { { 2, 2.0f },
                                                   { 0, minus_infinity },
                                                   { 9, 5.0f } };
    const sampler smpl("logit-bias",
                       llama_sampler_init_logit_bias(4, static_cast<int32_t>(biases.size()),
                                                     biases.data()));
    check_logits(candidates::of_logits({ 1.0f, 1.0f, 1.0f, 1.0f }).apply(smpl),
                 { minus_infinity, 1.0, 3.0, 1.0 });
    // Where another sampler has reordered.
    candidates of = candidates::of_logits({ 1.0f, 2.0f, 3.0f }).with_ids({ 2, 0, 1 });
    check_logits(of.apply(smpl), { minus_infinity, 3.0, 3.0 });
    candidates same = candidates::of_logits({ 1.0f });
    check_logits(same.apply(sampler("?logit-bias", llama_sampler_init_logit_bias(4, 0, nullptr))),
                 { 1.0 });
}

// The samplers that know the vocabulary.

class vocabulary {
  public:
    explicit vocabulary(const char * path) {
        subject = "vocabulary";
        llama_model_params params = llama_model_default_params();
        params.vocab_only         = true;
        model                     = llama_model_load_from_file(path, params);
        CHECK(model != nullptr);
        vocab = llama_model_get_vocab(model);
    }
    vocabulary(const vocabulary &) = delete;
    vocabulary & operator=(const vocabulary &) = delete;
    ~vocabulary() { llama_model_free(model); }

    int32_t     size() const { return llama_vocab_n_tokens(vocab); }
    std::string piece(llama_token token) const {
        char          buffer[256];
        const int32_t n = llama_token_to_piece(vocab, token, buffer, sizeof(buffer), 0, false);
        return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
    }
    llama_token only_token(const std::string & text) const {
        for (llama_token token = 0; token < size(); token++) {
            if (piece(token) == text) {
                return token;
            }
        }
        CHECK(!"the text is one token");
        return -1;
    }

    const llama_vocab * vocab;

  private:
    llama_model * model;
};

bool starts_with(const std::string & text, const std::string & with) {
    return text.compare(0, with.size(), with) == 0;
}

void dry(const vocabulary & words) {
    const std::vector<float> zeros(10, 0.0f);
    const auto after = [&](const ids & history, int32_t allowed_length, int32_t last_n) {
        const sampler smpl("dry", llama_sampler_init_dry(words.vocab, 2.0f, 3.0f, allowed_length,
                                                         last_n, nullptr, 0));
        smpl.accept(history);
        std::vector<double> penalties;
        candidates          of = candidates::of_logits(zeros);
        of.apply(smpl);
        for (llama_token id = 0; id < 10; id++) {
            penalties.push_back(-of.of_id(id).logit);
        }
        return penalties;
    };
    using numbers = std::vector<double>;
    // "1 2" again: 3 would make the repetition three long. It loses 2 * 3^(2 - allowed).
    CHECK((after({ 1, 2, 3, 1, 2 }, 2, 64) == numbers{ 0, 0, 0, 2, 0, 0, 0, 0, 0, 0 }));
    CHECK((after({ 1, 2, 3, 1, 2 }, 1, 64) == numbers{ 0, 0, 0, 6, 0, 0, 0, 0, 0, 0 }));
    CHECK((after({ 1, 2, 3, 1, 2 }, 3, 64) == numbers(10, 0)));
    // Two continuations, after repetitions of two and of three.
    CHECK((after({ 5, 6, 7, 8, 4, 6, 7, 9, 5, 6, 7 }, 2, 64) ==
           numbers{ 0, 0, 0, 0, 0, 0, 0, 0, 6, 2 }));
    // The first "1 2" is too long ago.
    CHECK((after({ 1, 2, 3, 1, 2 }, 2, 3) == numbers(10, 0)));

    // A line's end breaks the repetition that goes across it.
    const llama_token line_end = words.only_token("\n");
    const char *      breaker  = "\n";
    const sampler smpl("dry", llama_sampler_init_dry(words.vocab, 2.0f, 3.0f, 1, 64, &breaker, 1));
    smpl.accept({ 1, line_end, 3, 1, line_end });
    candidates of = candidates::of_logits(zeros);
    check_logits(of.apply(smpl), std::vector<double>(10, 0.0));
    // Behind it one begins anew: "3" alone is repeated here, "line end, 3" is not.
    smpl.accept({ 3 });
    candidates next = candidates::of_logits(zeros);
    check_logits(next.apply(smpl), { 0, -2, 0, 0, 0, 0, 0, 0, 0, 0 });
}

void infill(const vocabulary & words) {
    const llama_token end = llama_vocab_eos(words.vocab);
    CHECK(llama_vocab_is_eog(words.vocab, end));
    // A word, another that begins with it, and two that have nothing in common with these.
    const llama_token word = words.only_token(" the");
    const llama_token longer = words.only_token(" they");
    const llama_token other = words.only_token(" and");
    const llama_token third = words.only_token(" of");
    CHECK(!starts_with(words.piece(other), words.piece(third)) &&
          starts_with(words.piece(longer), words.piece(word)));
    const sampler smpl("infill", llama_sampler_init_infill(words.vocab));
    {
        // Three times the number of candidates times the end's probability exceeds the rest.
        candidates of =
            candidates::of_probabilities({ 0.5, 0.25, 0.25 }).with_ids({ end, word, other });
        CHECK((of.apply(smpl).ids() == ids{ end }) && near(of.of_id(end).p, 1.0));
    }
    {
        // 0.15 is below 0.2. Of the rest, 0.65 and 0.35 are above 1 / 3.
        candidates of =
            candidates::of_probabilities({ 0.55, 0.3, 0.15 }).with_ids({ word, other, third });
        CHECK((of.apply(smpl).ids() == ids{ word, other }));
        CHECK(near(of.of_id(word).p, 0.55 / 0.85) && near(of.of_id(other).p, 0.3 / 0.85));
    }
    {
        // Of the rest, 0.26 is below 1 / 3.
        candidates of =
            candidates::of_probabilities({ 0.7, 0.25, 0.05 }).with_ids({ word, other, third });
        CHECK((of.apply(smpl).ids() == ids{ word }) && near(of.of_id(word).p, 1.0));
    }
    {
        // The longer word counts for the one that it begins with, unless it is the more probable of
        // the two.
        candidates of =
            candidates::of_probabilities({ 0.35, 0.25, 0.4 }).with_ids({ word, longer, other });
        CHECK((of.apply(smpl).sorted_ids() == ids{ std::min(word, other), std::max(word, other) }));
        CHECK(near(of.of_id(word).p, 0.6) && near(of.of_id(other).p, 0.4));
        candidates swapped =
            candidates::of_probabilities({ 0.25, 0.35, 0.4 }).with_ids({ word, longer, other });
        CHECK(near(swapped.apply(smpl).of_id(longer).p, 0.6));
    }
}

// What a sampler says of its seed.

void seeds() {
    const sampler first("dist", llama_sampler_init_dist(1234));
    CHECK(llama_sampler_get_seed(first) == 1234);
    const sampler none("greedy", llama_sampler_init_greedy());
    CHECK(llama_sampler_get_seed(none) == LLAMA_DEFAULT_SEED);
    const sampler miro("mirostat", llama_sampler_init_mirostat(8, 5, 1.0f, 0.1f, 100));
    CHECK(llama_sampler_get_seed(miro) == 5);
    const sampler miro_v2("mirostat-v2", llama_sampler_init_mirostat_v2(6, 1.0f, 0.1f));
    CHECK(llama_sampler_get_seed(miro_v2) == 6);
    const sampler random("dist", llama_sampler_init_dist(LLAMA_DEFAULT_SEED));
    CHECK(llama_sampler_get_seed(random) != LLAMA_DEFAULT_SEED);
    const sampler chain("chain", llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(5));
    CHECK(llama_sampler_get_seed(chain) == LLAMA_DEFAULT_SEED);
    llama_sampler_chain_add(chain, llama_sampler_init_dist(77));
    llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    CHECK(llama_sampler_get_seed(chain) == 77);
}

// Every constructor, by its address: a table of them must compile, too.
struct llama_sampler * (*const by_address)(int32_t) = &llama_sampler_init_top_k;

// Queues of top-k, top-p and min-p over candidates whose probabilities are as 1 : 2 : 3 ... What is
// left is always the upper end of them, so a number says all about it.

struct queue_parameters {
    int32_t k;
    float   p;
    float   m;
};

class naive_queue {
  public:
    naive_queue(size_t n, const queue_parameters & parameters)
        : n_all(n), n_left(n), descending(false), parameters(parameters) {}

    // The sampler adds its float numbers up one by one, so the n-th step of a sum is only known to
    // this: smallest and largest number left.
    std::pair<size_t, size_t> left_by(char kind) {
        const double largest = static_cast<double>(n_all);
        if (kind == 'k') {
            descending     = true;
            const size_t k = std::min(n_left, static_cast<size_t>(parameters.k));
            return { k, k };
        }
        if (kind == 'm') {
            size_t n = 0;
            while (n < n_left && largest - static_cast<double>(n) >= parameters.m * largest) {
                n++;
            }
            return { n, n };
        }
        descending = true;
        return { reaching(parameters.p - rounding), reaching(parameters.p + rounding) };
    }
    void go_on_with(size_t n) { n_left = n; }

    llama_token greatest() const { return static_cast<llama_token>(n_all) - 1; }
    llama_token least() const { return static_cast<llama_token>(n_all - n_left); }
    llama_token first() const { return descending ? greatest() : least(); }
    llama_token last() const { return descending ? least() : greatest(); }

  private:
    static constexpr double rounding = 2e-5;

    size_t reaching(double share) const {
        double total = 0.0;
        for (size_t i = 0; i < n_left; i++) {
            total += static_cast<double>(n_all - i);
        }
        double sum = 0.0;
        for (size_t i = 0; i < n_left; i++) {
            sum += static_cast<double>(n_all - i);
            if (sum >= share * total) {
                return i + 1;
            }
        }
        return n_left;
    }

    size_t           n_all;
    size_t           n_left;
    // Until something sorts, they stand as they were put, the least probable first.
    bool             descending;
    queue_parameters parameters;
};

llama_sampler * make(char kind, const queue_parameters & parameters) {
    switch (kind) {
        case 'k': return by_address(parameters.k);
        case 'p': return llama_sampler_init_top_p(parameters.p, 1);
        default: return llama_sampler_init_min_p(parameters.m, 1);
    }
}

const char * name_of(char kind) {
    return kind == 'k' ? "top-k" : kind == 'p' ? "top-p" : "min-p";
}

std::vector<std::string> all_queues(size_t longest) {
    std::vector<std::string> queues = { "k", "p", "m" };
    for (size_t i = 0; i < queues.size(); i++) {
        if (queues[i].size() < longest) {
            for (const char kind : { 'k', 'p', 'm' }) {
                queues.push_back(queues[i] + kind);
            }
        }
    }
    return queues;
}

void queues() {
    constexpr size_t   n = 10000;
    std::vector<float> logits;
    for (size_t i = 0; i < n; i++) {
        logits.push_back(static_cast<float>(std::log(static_cast<double>(i + 1))));
    }
    const std::vector<std::string> orders = all_queues(4);
    subject                               = "queues";
    CHECK(orders.size() == 3 + 9 + 27 + 81);
    // The min-p thresholds lie between two candidates.
    for (const queue_parameters & parameters :
         std::vector<queue_parameters>{ { 100, 0.8f, 0.10005f },
                                        { 9000, 0.5f, 0.30005f },
                                        { 9999, 0.999f, 0.00015f },
                                        { 1, 0.3f, 0.99005f },
                                        { 7000, 0.9f, 0.00005f } }) {
        for (const std::string & order : orders) {
            candidates  stepwise = candidates::of_logits(logits);
            naive_queue naive(n, parameters);
            const sampler chain("chain",
                                llama_sampler_chain_init(llama_sampler_chain_default_params()));
            for (const char kind : order) {
                stepwise.apply(sampler(name_of(kind), make(kind, parameters)));
                const auto [least, most] = naive.left_by(kind);
                subject                  = "queue " + order;
                CHECK(least <= stepwise.size() && stepwise.size() <= most);
                naive.go_on_with(stepwise.size());
                CHECK(stepwise.first() == naive.first() && stepwise.last() == naive.last());
                llama_sampler_chain_add(chain, make(kind, parameters));
            }
            candidates whole = candidates::of_logits(logits);
            whole.apply(chain);
            CHECK(whole.ids() == stepwise.ids());
            CHECK(static_cast<size_t>(whole.sorted_ids().front()) == n - whole.size());
        }
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: sampling_cases MODEL\n");
        return 1;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    greedy();
    dist();
    dist_takes_a_number_for_a_single_candidate();
    mirostat();
    mirostat_v2();
    adaptive_p();
    top_k();
    top_p();
    min_p();
    typical();
    top_n_sigma();
    xtc();
    temp();
    temp_ext();
    penalties();
    logit_bias();
    seeds();
    const vocabulary words(argv[1]);
    dry(words);
    infill(words);
    queues();
    std::printf("%zu checks hold\n", n_checks);
    return 0;
}
