// The functions of llama.cpp's common library that json-schema-to-grammar.cpp needs, for a program
// that contains no other part of that library.
#include "common.h"

std::string string_join(const std::vector<std::string> & values, const std::string & separator) {
    std::string joined;
    for (const std::string & value : values) {
        if (&value != values.data()) {
            joined += separator;
        }
        joined += value;
    }
    return joined;
}

std::vector<std::string> string_split(const std::string & text, const std::string & delimiter) {
    std::vector<std::string> parts;
    size_t begin = 0;
    for (size_t end = text.find(delimiter); end != std::string::npos;
         end = text.find(delimiter, begin)) {
        parts.push_back(text.substr(begin, end - begin));
        begin = end + delimiter.size();
    }
    parts.push_back(text.substr(begin));
    return parts;
}

std::string string_repeat(const std::string & text, size_t n) {
    std::string repeated;
    for (; n > 0; n--) {
        repeated += text;
    }
    return repeated;
}
