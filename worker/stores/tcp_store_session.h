#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "worker/stores/job_store.h"
#include "worker/stores/tcp_store_wire.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrun::stores {

/// One client of torch's TCPStore: its bytes in, bytes for it out, and what it asks of a JobStore.
/// No sockets.
///
/// Requests are carried out in their order. Those without a reply may be under way together; behind
/// one with a reply nothing is begun until that is there, except CANCEL_WAIT behind a WAIT.
///
/// A key of torch's is kept in the JobStore as "torch/k" and the key, and what holds who waits at a
/// BARRIER as "torch/b" and the key.
///
/// Thread: one. Lifetime: `store` outlives it; with the session its waits end.
class TcpStoreSession {
public:
    struct Hooks {
        /// Something came of an answer: there is output, more input is wanted, or it has failed.
        /// Not called for what comes of received() and set_writable() before they return. May not
        /// destroy the session.
        std::function<void()> changed;
        /// See TcpStoreParser.
        std::function<bool()> has_idle_sibling;
        /// This client has published that it is this rank of torch's default group.
        std::function<void(std::uint32_t)> is_rank;
    };

    /// What the client waits for.
    struct Waiting {
        std::string_view key;  ///< the first one
        std::size_t keys = 1;
        bool barrier = false;
        bool pop = false;
        std::optional<std::uint32_t> for_rank;  ///< the highest one of which a key is waited for
        Deadline since{};
    };

    TcpStoreSession(JobStore& store, Hooks hooks);
    ~TcpStoreSession();
    TcpStoreSession(const TcpStoreSession&) = delete;
    TcpStoreSession& operator=(const TcpStoreSession&) = delete;

    /// Where the next bytes belong, while wants_input(). Not to be called again before received().
    std::span<char> room();
    /// \param bytes  so many, at the beginning of room()
    void received(std::size_t bytes);
    bool wants_input() const;

    bool has_output() const { return !out_.empty(); }
    /// All that is to be sent now.
    std::string_view output() const { return out_; }
    void sent(std::size_t bytes);
    /// The same, to keep while it is being sent.
    Bytes take_output() { return std::exchange(out_, {}); }
    /// Whether the client reads what it is sent: nothing is done for one that does not.
    void set_writable(bool writable);

    /// The connection is to be closed. invalid_input: because of what the client has sent or asked,
    /// which is worth a warning; closed: the generation is over.
    const std::optional<Error>& failure() const { return failure_; }
    /// Looks again at what only another connection could decide.
    void reconsider();
    bool undecided() const { return parser_.undecided(); }

    std::optional<Waiting> waiting() const;
    std::uint32_t pid() const { return pid_; }  ///< of the client; 0: not known
    bool has_spoken() const { return has_spoken_; }

private:
    /// Where the request that has a reply stands.
    enum class Stage : std::uint8_t {
        none,     ///< there is none
        to_ask,   ///< the store is to be asked
        asked,    ///< nothing else is done before the answer
        waiting,  ///< as long as it takes; may be cancelled
    };
    struct Told {
        std::uint64_t serial = 0;
        JobStore::Ticket ticket = 0;
        std::size_t bytes = 0;
    };
    struct Watch {
        std::string key;                          ///< as on the wire
        std::optional<std::uint64_t> revision{};  ///< that the client knows
        std::optional<std::string> value{};
        JobStore::Ticket ticket = 0;
    };

    void run();
    bool step();
    bool find_request();
    void consume();
    void fail_with(Errc code, std::string why);

    std::string_view field(std::size_t index) const;
    void new_request(Op op);
    void take_key(std::string_view prefix, std::string_view key);
    void take_keys(std::size_t stride);

    void execute();
    void execute_wait();
    void execute_barrier();
    void execute_pop(bool waited_for_it);
    void tell();
    void ask_aside(std::size_t bytes);
    void start(TorchOp op);
    bool during_wait();
    void give_up_waiting();

    void ask(Stage stage);
    void ask_part();
    void ask_compare_set();
    void ask_multi_get();
    void ask_page();
    void ask_barrier();
    void told(std::uint64_t serial, const StoreReply& reply);
    void answered(std::uint64_t serial, const StoreReply& reply);
    void take_answer(const StoreReply& reply);
    void take_compare_set(const StoreReply& reply);
    void take_multi_get(const StoreReply& reply);
    void take_page(const StoreReply& reply);
    void take_barrier(const StoreReply& reply);
    void take_pop(const StoreReply& reply);
    bool is_refused(const StoreReply& reply);
    void finish();

    void add_watch();
    void ask_watch(std::uint64_t serial);
    void watched(std::uint64_t serial, const StoreReply& reply);

    template <class T>
    void put(T value);
    void put_bytes(std::string_view bytes);

    JobStore& store_;
    Hooks hooks_;
    TcpStoreParser parser_;

    // What has come: [begin_, end_) of in_ is not used yet.
    std::unique_ptr<char[]> in_;
    std::size_t in_bytes_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::size_t request_bytes_ = 0;  ///< of the request that was found and not consumed; 0: none
    bool has_spoken_ = false;

    Bytes out_;
    bool writable_ = true;
    bool running_ = false;
    std::optional<Error> failure_;
    std::uint32_t pid_ = 0;
    std::uint64_t last_serial_ = 0;

    // Requests that have no reply, and that the store has not confirmed.
    std::vector<Told> told_;
    std::size_t told_bytes_ = 0;
    std::uint64_t told_at_once_ = 0;  ///< confirmed by the call of JobStore::ask() that is not over
    bool told_too_much_ = false;

    // The request that has one.
    Stage stage_ = Stage::none;
    TorchOp op_{};
    std::uint64_t serial_ = 0;
    JobStore::Ticket ticket_ = 0;
    int part_ = 0;          ///< which question, where it takes several
    std::size_t next_ = 0;  ///< multi_get: the key that is asked for alone
    std::vector<std::string>
        keys_;  ///< list: the store's, as far as they are known; count: the last of these
    std::uint64_t counted_ = 0;  ///< of them

    // What it waits for, or has waited for last.
    Bytes wait_key_;
    std::size_t wait_keys_ = 0;
    std::optional<std::uint32_t> wait_rank_;
    std::int64_t barrier_size_ = 0;
    Deadline wait_since_{};
    bool waited_for_one_ = false;  ///< the last request was a WAIT for wait_key_ alone

    std::map<std::uint64_t, Watch> watches_;
    std::vector<std::uint64_t> to_watch_;  ///< to be asked

    StoreRequest request_;  ///< kept for its memory, like scratch_
    Bytes scratch_;
};

}  // namespace dtrun::stores
