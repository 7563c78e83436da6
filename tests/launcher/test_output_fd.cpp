#include "launcher/output/fd_writer.h"
#include "tests/launcher/output_support.h"
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <thread>

using namespace dtrun;
using namespace dtrun::output;

namespace {

/// A writer that knows when it is idle, and what has been taken.
class WriterUser {
public:
    explicit WriterUser(int fd)
        : writer_(std::make_shared<FdWriter>(
              fd, "standard output", BufferQueue::Options{},
              [this](std::span<const Written> pieces) { note(pieces); })) {}
    FdWriter* operator->() { return writer_.operator->(); }

    void write(std::string_view bytes) {
        BufferQueue::Filler out(writer_->queue());
        out.write(bytes);
        out.account(0, bytes.size());
        written_ += bytes.size();
    }
    /// The queue is idle before the last piece is noted as taken, so this waits for the latter.
    bool drain() {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, soon(), [this] { return taken_ == written_; });
    }
    void stop(std::chrono::milliseconds time) {
        writer_->stop(after(time));
        writer_->join();
    }
    std::size_t taken() {
        const std::lock_guard lock(mutex_);
        return taken_;
    }

private:
    void note(std::span<const Written> pieces) {
        const std::lock_guard lock(mutex_);
        for (const Written& piece : pieces) taken_ += piece.bytes;
        changed_.notify_one();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t written_ = 0;  // the test's thread only
    std::size_t taken_ = 0;    // guarded by mutex_
    Running<FdWriter> writer_;
};

/// A disk: it answers when it is told to, and until then no write returns.
class SilentDisk {
public:
    void answer() {
        const std::lock_guard lock(mutex_);
        answers_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        waits_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return answers_; });
    }
    void await_write() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return waits_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool answers_ = false;
    bool waits_ = false;
};

class SilentFile final : public Sink {
public:
    explicit SilentFile(std::shared_ptr<SilentDisk> disk)
        : Sink("silent", "too slow", {}, [](std::span<const Written>) {}), disk_(std::move(disk)) {}

private:
    void write_out(BufferQueue::Buffer&) override { disk_->wait(); }

    const std::shared_ptr<SilentDisk> disk_;
};

Pipe pipe_pair() {
    auto made = make_pipe();
    REQUIRE(made.has_value());
    return std::move(*made);
}

Pipe socket_pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    return {Fd(ends[0]), Fd(ends[1])};
}

std::string read_to_end(int fd) {
    std::string text;
    char part[4096];
    for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(n));
    return text;
}

/// A terminal that changes nothing, and the other side of it.
struct Terminal {
    Fd screen;
    Fd device;

    explicit Terminal(unsigned short columns, const char* kind = "xterm")
        : screen(::posix_openpt(O_RDWR | O_NOCTTY)) {
        ::setenv("TERM", kind, 1);
        REQUIRE(::grantpt(screen.get()) == 0);
        REQUIRE(::unlockpt(screen.get()) == 0);
        device.reset(::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY));
        termios mode{};
        REQUIRE(::tcgetattr(device.get(), &mode) == 0);
        ::cfmakeraw(&mode);
        REQUIRE(::tcsetattr(device.get(), TCSANOW, &mode) == 0);
        const winsize size{24, columns, 0, 0};
        REQUIRE(::ioctl(device.get(), TIOCSWINSZ, &size) == 0);
    }
    /// What appears, up to and including `last`.
    std::string read_until(std::string_view last) const {
        std::string text;
        char byte = 0;
        while (!text.ends_with(last) && ::read(screen.get(), &byte, 1) == 1) text += byte;
        return text;
    }
};

}  // namespace

TEST_CASE("Everything reaches a slow reader in order", "[output]") {
    Pipe pipe = GENERATE(0, 1) == 0 ? pipe_pair() : socket_pair();
    std::string sent;
    for (int i = 0; sent.size() < (3u << 20); i++) sent += fmt::format("{}\n", i);
    std::string received;
    std::thread reader([&] { received = read_to_end(pipe.read.get()); });
    {
        WriterUser writer(pipe.write.get());
        Dice dice;
        INFO("DTRUN_SEED=" << dice.seed());
        for (const auto piece : dice.split(sent, 100'000)) writer.write(piece);
        CHECK(writer.drain());
        CHECK(writer.taken() == sent.size());
        CHECK_FALSE(writer->take_failure().has_value());
        writer.stop(std::chrono::minutes(1));
    }
    pipe.write.reset();
    reader.join();
    CHECK(received == sent);
}

TEST_CASE("A descriptor that somebody made non-blocking loses nothing", "[output]") {
    Pipe pipe = pipe_pair();
    REQUIRE(::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK) == 0);
    const std::string sent(4u << 20, 'x');
    std::size_t received = 0;
    std::thread reader([&] { received = read_to_end(pipe.read.get()).size(); });
    {
        WriterUser writer(pipe.write.get());
        writer.write(sent);
        CHECK(writer.drain());
    }
    pipe.write.reset();
    reader.join();
    CHECK(received == sent.size());
}

TEST_CASE("The flags of an inherited descriptor stay as they are", "[output]") {
    const Pipe pipe = pipe_pair();
    const int before = ::fcntl(pipe.write.get(), F_GETFL);
    WriterUser writer(pipe.write.get());
    writer.write("text");
    CHECK(writer.drain());
    CHECK(::fcntl(pipe.write.get(), F_GETFL) == before);
}

TEST_CASE("A file is continued where its descriptor stands", "[output]") {
    const MemoryFile file;
    REQUIRE(::write(file.fd(), "before ", 7) == 7);
    {
        WriterUser writer(file.fd());
        writer.write("text");
        CHECK(writer.drain());
    }
    REQUIRE(::write(file.fd(), " after", 6) == 6);
    CHECK(file.text() == "before text after");
}

TEST_CASE("A reader that has gone is reported once, and what follows is dropped", "[output]") {
    const bool before_start = GENERATE(false, true);
    Pipe pipe = GENERATE(0, 1) == 0 ? pipe_pair() : socket_pair();
    if (before_start) pipe.read.reset();
    WriterUser writer(pipe.write.get());
    pipe.read.reset();
    writer.write("text\n");
    CHECK(writer.drain());
    const auto failure = writer->take_failure();
    REQUIRE(failure.has_value());
    CHECK(failure->code == Errc::closed);
    CHECK(failure->message == "standard output: Broken pipe");
    writer.write("more\n");
    CHECK(writer.drain());
    CHECK_FALSE(writer->take_failure().has_value());
    CHECK(writer.taken() == 10);
}

TEST_CASE("A full disk is an error with its reason", "[output]") {
    const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    WriterUser writer(full.get());
    writer.write("text\n");
    CHECK(writer.drain());
    const auto failure = writer->take_failure();
    REQUIRE(failure.has_value());
    CHECK(failure->code == Errc::internal);
    CHECK(failure->message == "standard output: No space left on device");
}

TEST_CASE("stop() does not wait for a reader that does not read", "[output]") {
    const Pipe pipe = GENERATE(0, 1) == 0 ? pipe_pair() : socket_pair();
    WriterUser writer(pipe.write.get());
    const std::string sent(8u << 20, 'x');
    writer.write(sent);
    const auto begin = Clock::now();
    writer.stop(std::chrono::milliseconds(50));
    CHECK(Clock::now() - begin < std::chrono::seconds(10));
    CHECK(writer.taken() == sent.size());
    const auto failure = writer->take_failure();
    REQUIRE(failure.has_value());
    CHECK(failure->code == Errc::timed_out);
    int received = 0;
    REQUIRE(::ioctl(pipe.read.get(), FIONREAD, &received) == 0);
    CHECK(failure->message ==
          fmt::format("standard output: its reader does not read, {} bytes not written",
                      sent.size() - static_cast<std::size_t>(received)));
}

TEST_CASE("A write that never returns is left behind with its thread, and its bytes are a failure",
          "[output]") {
    const auto disk = std::make_shared<SilentDisk>();
    {
        const Running<SilentFile> file(std::make_shared<SilentFile>(disk));
        BufferQueue::Filler(file->queue()).write("text");
        disk->await_write();
        file->stop(Clock::now(), 3);
        file->join();
        CHECK_FALSE(file->answers());
        const auto failure = file->take_failure();
        REQUIRE(failure.has_value());
        CHECK(failure->code == Errc::timed_out);
        CHECK(failure->message == "silent: does not answer, 7 bytes not written");
    }
    disk->answer();  // the thread ends, and with it what it has worked on
}

TEST_CASE("A pipe that cannot be opened again is written in pieces that do not block", "[output]") {
    Pipe pipe = pipe_pair();
    pipe.read.reset();  // without a reader the kernel refuses to open it
    const bool reads = GENERATE(true, false);
    const std::string sent(3u << 20, 'x');
    std::size_t received = 0;
    std::thread reader;
    {
        WriterUser writer(pipe.write.get());
        const auto path = fmt::format("/proc/self/fd/{}", pipe.write.get());
        pipe.read.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        REQUIRE(::fcntl(pipe.read.get(), F_SETFL, 0) == 0);
        if (reads) reader = std::thread([&] { received = read_to_end(pipe.read.get()).size(); });
        writer.write(sent);
        writer.stop(reads ? std::chrono::milliseconds(60'000) : std::chrono::milliseconds(50));
        CHECK(writer.taken() == sent.size());
        CHECK(writer->take_failure().has_value() == !reads);
    }
    pipe.write.reset();
    if (reads) reader.join();
    CHECK(received == (reads ? sent.size() : 0));
}

TEST_CASE("Two descriptors of one pipe are the same file, two pipes are not", "[output]") {
    const Pipe one = pipe_pair();
    const Pipe other = pipe_pair();
    const Fd again(::fcntl(one.write.get(), F_DUPFD_CLOEXEC, 0));
    CHECK(same_file(one.write.get(), again.get()));
    CHECK_FALSE(same_file(one.write.get(), other.write.get()));
    CHECK_FALSE(same_file(-1, -1));
}

TEST_CASE("The status line gives way to other output and comes back below it", "[output]") {
    const Terminal terminal(40);
    WriterUser writer(terminal.device.get());
    REQUIRE(writer->is_terminal());
    writer->set_status("2 of 4 hosts");
    CHECK(terminal.read_until("hosts") == "\r\x1b[K2 of 4 hosts");
    writer.write("a line\n");
    CHECK(terminal.read_until("hosts") == "\r\x1b[Ka line\n\r\x1b[K2 of 4 hosts");
    writer->set_status("3 of 4 hosts");
    CHECK(terminal.read_until("hosts") == "\r\x1b[K3 of 4 hosts");
    writer.write("no line yet");
    CHECK(terminal.read_until("yet") == "\r\x1b[Kno line yet");
    writer.write(", now\n");
    CHECK(terminal.read_until("hosts") == ", now\n\r\x1b[K3 of 4 hosts");
    writer->set_status("");
    CHECK(terminal.read_until("\x1b[K") == "\r\x1b[K");
    writer.write("end\n");
    CHECK(terminal.read_until("end\n") == "end\n");
}

TEST_CASE("The status line is cut to the terminal's width and erased at the end", "[output]") {
    const Terminal terminal(8);
    WriterUser writer(terminal.device.get());
    writer->set_status("12345\xc3\xa4\xc3\xb6");
    CHECK(terminal.read_until("\xa4") == "\r\x1b[K12345\xc3\xa4");
    writer.stop(std::chrono::minutes(1));
    CHECK(terminal.read_until("\x1b[K") == "\r\x1b[K");
}

TEST_CASE("A terminal on which nothing can be erased has no status line", "[output]") {
    const Terminal terminal(40, GENERATE("dumb", ""));
    WriterUser writer(terminal.device.get());
    CHECK(writer->is_terminal());
    CHECK_FALSE(writer->has_status());
    writer->set_status("2 of 4 hosts");
    writer.write("a line\n");
    CHECK(terminal.read_until("line\n") == "a line\n");
}

TEST_CASE("There is no status line on anything but a terminal", "[output]") {
    const MemoryFile file;
    WriterUser writer(file.fd());
    CHECK_FALSE(writer->is_terminal());
    writer->set_status("2 of 4 hosts");
    writer.write("a line\n");
    CHECK(writer.drain());
    CHECK(file.text() == "a line\n");
}

TEST_CASE("What only the user may see is on the terminal, and not in the log", "[output]") {
    const TempDir directory;
    const bool on_terminal = GENERATE(true, false);
    const Terminal terminal(80);
    const MemoryFile file;
    const std::string log = directory.path() + "/log";
    {
        OutputOptions options;
        options.stdout_fd = options.stderr_fd = on_terminal ? terminal.device.get() : file.fd();
        options.log = log;
        MuxUser mux(std::move(options), {"s1"});
        mux->message_to_terminal("the page: 4f2a\n", "the page: KEY\n");
        mux->stop(soon());
    }
    CHECK(read_file(log).value().ends_with(" the page: KEY\n"));
    if (on_terminal)
        CHECK(terminal.read_until("\n") == "the page: 4f2a\n");
    else
        CHECK(file.text() == "the page: KEY\n");
}
