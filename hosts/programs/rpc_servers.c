// Linked into a program without any code for RPC, with -Wl,--wrap=llama_model_load_from_file.
// Before main, the servers in LLAMA_RPC_SERVERS (host:port, separated by commas) become devices of
// ggml; all layers of a model are then put on them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "llama.h"

__attribute__((constructor)) static void add_servers(void) {
    const char * servers = getenv("LLAMA_RPC_SERVERS");
    if (servers == NULL) {
        return;
    }
    ggml_backend_reg_t rpc   = ggml_backend_reg_by_name("RPC");
    void * found =
        rpc == NULL ? NULL : ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
    char *             list  = strdup(servers);
    if (found == NULL || list == NULL) {
        fprintf(stderr, "rpc_servers: this llama.cpp was built without RPC\n");
        exit(1);
    }
    ggml_backend_reg_t (*add)(const char * server);
    memcpy(&add, &found, sizeof(add));
    for (char * server = strtok(list, ","); server != NULL; server = strtok(NULL, ",")) {
        ggml_backend_reg_t reg = add(server);
        if (reg == NULL) {
            fprintf(stderr, "rpc_servers: %s is no server\n", server);
            exit(1);
        }
        ggml_backend_register(reg);
    }
    free(list);
}

struct llama_model * __real_llama_model_load_from_file(const char * path,
                                                       struct llama_model_params params);
struct llama_model * __wrap_llama_model_load_from_file(const char * path,
                                                       struct llama_model_params params);

struct llama_model * __wrap_llama_model_load_from_file(const char * path,
                                                       struct llama_model_params params) {
    if (getenv("LLAMA_RPC_SERVERS") != NULL) {
        params.n_gpu_layers = 1000;
    }
    return __real_llama_model_load_from_file(path, params);
}
