#include "worker/agent/rank_streams.h"

#include "base/fd.h"
#include "base/log.h"
#include "rendezvous/wire/message.h"
#include "rendezvous/wire/output_messages.h"

#include <fcntl.h>

namespace dtrun::agent {

RankStreams::RankStreams(asio::any_io_executor executor, Link& link, Router<>& router,
                         std::uint32_t window_bytes, std::function<void()> ended)
    : executor_(executor),
      link_(link),
      pump_(executor, link, window_bytes,
            [this, ended = std::move(ended)](SlotIndex place, Stream stream) {
                link_.send(encode(OutputEnd{place, stream}));
                ended();
            }) {
    router.on<Credit>([this](const Credit& credit) { pump_.credit(credit.bytes); });
    router.on<Input>(this, &RankStreams::input);
}

void RankStreams::add(ranks::RankRunner::Start& start) {
    if (start.terminal) return add_terminal(start);
    pump_.add(start.place, Stream::out, std::move(start.out));
    pump_.add(start.place, Stream::err, std::move(start.err));
    if (start.in)
        feeds_[start.place] = std::make_unique<ranks::InputFeed>(executor_, std::move(start.in));
}

/// The pump reads pipes: what a rank writes to its terminal is copied into one.
void RankStreams::add_terminal(ranks::RankRunner::Start& start) {
    auto pipe = make_pipe();
    Fd keys(::fcntl(start.terminal.get(), F_DUPFD_CLOEXEC, 3));
    if (!pipe || !keys) return log::warn("no descriptors for a rank's terminal");
    for (const Fd* const end : {&pipe->read, &pipe->write})
        ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
    pump_.add(start.place, Stream::out, std::move(pipe->read));
    auto& copier = terminals_[start.place];
    copier = std::make_shared<ranks::TerminalCopier>(executor_, std::move(start.terminal),
                                                     std::move(pipe->write));
    copier->start();
    feeds_[start.place] = std::make_unique<ranks::InputFeed>(executor_, std::move(keys));
}

void RankStreams::resize(TerminalSize size) {
    for (const auto& [place, copier] : terminals_) copier->resize(size);
}

void RankStreams::close() {
    closed_ = true;
    for (const auto& [place, copier] : terminals_) copier->stop();
}

/// For every rank here that reads; no bytes: the end of input.
void RankStreams::input(Input input) {
    if (input.bytes.empty()) {
        for (const auto& [place, feed] : feeds_) {
            // A terminal has no end: what a user would type for it.
            if (terminals_.contains(place))
                feed->push(std::make_shared<const std::string>("\x04"));
            else
                feed->end();
        }
        return;
    }
    const auto give_credit = [this](const std::string* taken) {
        if (!closed_ && link_.is_open()) link_.send(encode(InputCredit{taken->size()}));
        delete taken;
    };
    const ranks::InputFeed::Chunk chunk(new std::string(std::move(input.bytes)), give_credit);
    for (const auto& [place, feed] : feeds_) feed->push(chunk);
}

}  // namespace dtrun::agent
