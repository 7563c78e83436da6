#include "worker/agent/rank_streams.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"

namespace dtrun::agent {

RankStreams::RankStreams(asio::any_io_executor executor, Link& link, std::uint32_t window_bytes,
                         std::function<void()> ended)
    : executor_(executor),
      link_(link),
      pump_(executor, link, window_bytes,
            [this, ended = std::move(ended)](SlotIndex place, Stream stream) {
                link_.send(encode(OutputEnd{place, stream}));
                ended();
            }) {}

void RankStreams::add(ranks::RankRunner::Start& start) {
    pump_.add(start.place, Stream::out, std::move(start.out));
    pump_.add(start.place, Stream::err, std::move(start.err));
    if (start.in)
        feeds_[start.place] = std::make_unique<ranks::InputFeed>(executor_, std::move(start.in));
}

void RankStreams::input(std::string bytes) {
    if (bytes.empty()) {
        for (const auto& [place, feed] : feeds_) feed->end();
        return;
    }
    const auto give_credit = [this](const std::string* taken) {
        if (!closed_ && link_.is_open()) link_.send(encode(InputCredit{taken->size()}));
        delete taken;
    };
    const ranks::InputFeed::Chunk chunk(new std::string(std::move(bytes)), give_credit);
    for (const auto& [place, feed] : feeds_) feed->push(chunk);
}

}  // namespace dtrun::agent
