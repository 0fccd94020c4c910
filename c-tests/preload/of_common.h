// The functions of llama.cpp's common library that sampling needs in addition to the sources that
// the tests compile: a clock, and the text of a token. Also an owning pointer to its samplers.
#ifndef OF_COMMON_H
#define OF_COMMON_H

#include <memory>
#include <string>

#include "common.h"
#include "llama.h"
#include "sampling.h"

common_time_meas::common_time_meas(int64_t & t_acc, bool) : t_start_us(0), t_acc(t_acc) {}
common_time_meas::~common_time_meas() = default;

std::string common_token_to_piece(const llama_vocab * vocab, llama_token token, bool special) {
    char          text[64];
    const int32_t n = llama_token_to_piece(vocab, token, text, sizeof(text), 0, special);
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

struct sampler_free {
    void operator()(common_sampler * sampler) const { common_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<common_sampler, sampler_free>;

#endif
