#pragma once

#include "collectives/key_store.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace dtrun::collectives {

/// A job's store for ranks that are processes of one host: a file for each key.
class FolderStore final : public KeyStore {
public:
    explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

    Result<void> set(std::span<const Pair> pairs) override {
        for (const auto& [key, value] : pairs) {
            const std::filesystem::path path = path_of(key);
            const std::filesystem::path partial =
                path.string() + ".partial" + std::to_string(::getpid());
            std::ofstream(partial, std::ios::binary) << value;
            std::filesystem::rename(partial, path);
        }
        return {};
    }

    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        std::vector<std::string> values;
        for (const std::string& key : keys) {
            auto value = find(key);
            for (; value && !*value; value = find(key)) {
                if (std::chrono::steady_clock::now() > deadline)
                    return fail(Errc::timed_out, "nobody has set {}", key);
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            values.push_back(**value);
        }
        return values;
    }

    Result<std::optional<std::string>> find(const std::string& key) override {
        std::ifstream file(path_of(key), std::ios::binary);
        if (!file) return std::nullopt;
        return std::string(std::istreambuf_iterator<char>(file), {});
    }

private:
    std::filesystem::path path_of(std::string key) const {
        for (char& c : key)
            if (c == '/') c = '.';
        return folder_ / key;
    }

    const std::filesystem::path folder_;
};

}  // namespace dtrun::collectives
