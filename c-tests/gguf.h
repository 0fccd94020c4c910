// Writes a model file that contains only a vocabulary, value by value.
#ifndef GGUF_H
#define GGUF_H

#include <cstdint>
#include <fstream>
#include <string>

#include "vocabulary.h"

enum : uint32_t { INT32 = 5, FLOAT32 = 6, STRING = 8, ARRAY = 9 };

struct Gguf {
    std::string bytes;

    template <typename T> void put(T value) {
        bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    }
    void put_text(const std::string & text) {
        put<uint64_t>(text.size());
        bytes += text;
    }
    void begin_array(const char * key, uint32_t kind, size_t n) {
        put_text(key);
        put<uint32_t>(ARRAY);
        put<uint32_t>(kind);
        put<uint64_t>(n);
    }
    void put_string(const char * key, const char * value) {
        put_text(key);
        put<uint32_t>(STRING);
        put_text(value);
    }
    // Writes the file. Returns true on success.
    bool write(const char * path) {
        bytes.resize((bytes.size() + 31) / 32 * 32);
        std::ofstream out(path, std::ios::binary);
        out << bytes;
        return out.good();
    }
};

#endif
