// The mean of all ranks' gradients, as they are and in 8 bits: dtrun -np 4 ./gradients

#include <dtrun/communicator.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

int main() try {
    dtrun::Worker worker;
    dtrun::Communicator comm(worker);
    const auto mean = [&](std::vector<float>& values, const dtrun::Compression& compression) {
        comm.barrier();
        const auto start = std::chrono::steady_clock::now();
        comm.allreduce(values.data(), values.data(), values.size(), dtrun::Reduce::average,
                       compression);
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count();
    };

    std::vector<float> gradients(1'000'000);
    for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = std::sin(static_cast<float>(i) * static_cast<float>(comm.rank() + 1));
    std::vector<float> in_8_bits = gradients;
    std::vector<float> error(gradients.size());  // what 8 bits lose now is made good next time
    // Always: by itself the library would not compress what stays on one host.
    const double exact_ms = mean(gradients, {});
    const double compressed_ms = mean(in_8_bits, {dtrun::Format::int8, false, error.data(), true});

    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        wrong += std::pow(static_cast<double>(in_8_bits[i] - gradients[i]), 2);
        all += std::pow(static_cast<double>(gradients[i]), 2);
    }
    if (comm.rank() == 0)
        std::printf("%u ranks over %s: %.2f ms, in 8 bits %.2f ms with an error of %.2f %%\n",
                    comm.size(), std::string(comm.backend()).c_str(), exact_ms, compressed_ms,
                    100 * std::sqrt(wrong / all));
    return 0;
} catch (const dtrun::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
