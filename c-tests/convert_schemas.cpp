// Converts JSON Schemas with llama.cpp's common library. Reads requests: a line with the number of
// bytes of a schema, and then the schema. Answers each with a line, "grammar" or "refused" and a
// number of bytes, and then with the grammar, or the reason of the refusal, of so many bytes.
#include "json-schema-to-grammar.h"

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

int main() {
    size_t n = 0;
    while (std::cin >> n && std::cin.get() == '\n') {
        std::string schema(n, '\0');
        if (!std::cin.read(&schema[0], (std::streamsize) n)) {
            return 1;
        }
        const char * what = "grammar";
        std::string text;
        try {
            text = json_schema_to_grammar(common_json::parse(schema), true);
        } catch (const std::exception & error) {
            what = "refused";
            text = error.what();
        }
        std::cout << what << ' ' << text.size() << '\n' << text << std::flush;
    }
    return 0;
}
