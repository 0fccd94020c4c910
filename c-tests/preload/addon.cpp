// A library that is linked with libllama, to be loaded with RTLD_LOCAL like an addon of Node. It
// makes samplers through its own imports.
#include <cmath>
#include <cstdio>
#include <vector>

#include "llama.h"

extern "C" int addon_run() {
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sampler_init_penalties(500, 16, 1.2f, 0.1f, 0.1f));
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(50));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.01f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(1.2f));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(42));
    std::printf("seed %u:", llama_sampler_get_seed(chain));
    std::vector<llama_token_data> data(500);
    for (int step = 0; step < 100; step++) {
        for (size_t i = 0; i < data.size(); i++) {
            data[i] = { static_cast<llama_token>(i),
                        3.0f * std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(step)),
                        0.0f };
        }
        llama_token_data_array array = { data.data(), data.size(), -1, false };
        llama_sampler_apply(chain, &array);
        const llama_token token = array.data[array.selected].id;
        llama_sampler_accept(chain, token);
        std::printf(" %d", token);
    }
    std::printf("\n");
    std::fflush(stdout);
    llama_sampler_free(chain);
    return 0;
}
