#!/usr/bin/python3
"""Proves the simulation: each of these mistakes, put into dtrun's sources, is found by it within a minute
of a processor.

    ./dev simulate --mutants [NAME..]

works on a copy of the tree in build/mutants. It prints, for each, what was found, after how many runs and
seconds, and fails if one was not."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

ROOT = os.path.realpath(os.path.dirname(os.path.abspath(__file__)) + "/../..")
COPY = f"{ROOT}/build/mutants"
PROGRAM = f"{COPY}/build/bin/test_simulation"
LIMIT = 60  # seconds of a processor to find one
TEST = "nothing acknowledged*"

# name: file, what stands there (once), what stands there instead
MUTANTS = {
    "answers are not kept on disk": (
        "rendezvous/exchange/hub.cpp",
        "    if (journal_ != nullptr) journal_->answered(header.client, header.id, *payload);\n", ""),
    "answers are not kept at all": (
        "rendezvous/exchange/hub.cpp", "    keep_answer(header.client, header.id, payload);\n", ""),
    "late copies of requests are carried out": (
        "rendezvous/exchange/hub.cpp", "if (client.gone || (options_.reconnects && client.peer > peer)) return true;",
        "if (client.gone) return true;"),
    "two answers are kept for a client, not 64": (
        "rendezvous/exchange/hub.cpp", "kAnswersMax = 64;", "kAnswersMax = 2;"),
    "answers are forgotten one too early": (
        "rendezvous/exchange/hub.cpp", "const std::uint64_t lowest = header.id - header.behind;",
        "const std::uint64_t lowest = header.id - header.behind + 2;"),
    "answers of a client that is away are dropped at once": (
        "rendezvous/exchange/hub.cpp",
        "        if (client.moved)\n            set_away(",
        "        if (true)\n            forget_client(name);\n        else if (client.moved)\n            set_away("),
    "kept answers are not restored": (
        "rendezvous/exchange/hub.cpp",
        "    keep_answer(name, id, std::make_shared<const Bytes>(std::move(reply)));\n"
        "    set_away(name, clients_.at(name), now + kReturnLimit);\n", "    (void)name, (void)id, (void)now;\n"),
    "frames leave before their changes are on disk": (
        "rendezvous/daemon/daemon.cpp", "frame.number = db_->submitted() + 1;", "frame.number = db_->submitted();"),
    "frames leave when their changes are submitted": (
        "rendezvous/daemon/daemon.cpp", "peer.held.front().number <= db_->durable()",
        "peer.held.front().number <= db_->submitted()"),
    "membership is not saved": (
        "rendezvous/daemon/daemon.cpp", "        job->second->save();\n", ""),
    "commits are not synced": (
        "rendezvous/daemon/state_db.cpp", "PRAGMA synchronous=FULL;", "PRAGMA synchronous=OFF;"),
    "a restart does not sync what it has read": (
        "rendezvous/daemon/state_db.cpp", "    return sync_log();\n", "    return {};\n"),
    "a batch counts as durable before it is written": (
        "rendezvous/daemon/state_db.cpp",
        "        lock.unlock();\n        const bool written = write(batches);",
        "        durable_ = batches.back().number;\n        if (on_durable_) on_durable_();\n"
        "        lock.unlock();\n        const bool written = write(batches);"),
    "popped items stay on disk": (
        "rendezvous/daemon/state_db.cpp", "DELETE FROM item WHERE job=? AND key=? AND item=?",
        "DELETE FROM item WHERE job=? AND key=? AND item=? AND 0"),
    "erased values stay on disk": (
        "rendezvous/daemon/state_db.cpp",
        'void erased(std::string_view key) override {\n'
        '        db_.run("DELETE FROM value WHERE job=? AND key=?", job_, key);\n',
        'void erased(std::string_view key) override {\n'),
    "a batch that finds the disk full is dropped": (
        "rendezvous/daemon/state_db.cpp",
        "        if (changed_.wait_until(lock, again, [this] { return stopping_; })) return false;",
        "        if (changed_.wait_until(lock, again, [this] { return stopping_; })) return false;\n"
        "        break;"),
    "writes that find the disk full are taken for done": (
        "rendezvous/daemon/state_db.cpp", "        return result == SQLITE_DONE;\n    };", "        return true;\n    };"),
    "ends of group fences are not remembered": (
        "rendezvous/exchange/group_fences.cpp", "    remember(key, std::move(end));\n}\n\nvoid GroupFences::remember",
        "}\n\nvoid GroupFences::remember"),
    "ends of group fences are not kept on disk": (
        "rendezvous/exchange/hub.cpp", "if (journal_ != nullptr) journal_->group_ended(key, end);",
        "(void)key, (void)end;"),
    "a fence of another launcher's ranks is complete with one missing": (
        "rendezvous/exchange/group_fences.cpp", "open.parts.size() == open.ranks)", "open.parts.size() + 1 >= open.ranks)"),
    "a fence is complete with one rank missing": (
        "rendezvous/exchange/fence_table.cpp", "if (open.ranks < ranks_) return {};",
        "if (open.ranks + 1 < ranks_) return {};"),
    "a finished job goes on when another member is lost": (
        "rendezvous/job/membership.cpp", "        case Phase::finishing:\n            if (had_ranks) end(false, cause);\n",
        "        case Phase::finishing:\n            if (had_ranks) propose(cause, now);\n"),
    "members are told different reasons of a job's end": (
        "rendezvous/daemon/served_job.cpp", "send(member, encode(Stop{SIGTERM, kGraceMs, orders.ended->why}));",
        "send(member, encode(Stop{SIGTERM, kGraceMs, orders.ended->why + std::to_string(peer)}));"),
    "survivors are ordered by chance": (
        "rendezvous/job/membership.cpp", "return std::pair(first, seat.order);",
        "return std::pair(seat.ranks.empty() ? first : Rank{0}, std::to_underlying(id));"),
    "the generation is not restored": (
        "rendezvous/daemon/served_job.cpp", "hub_.restore_generation(record.membership.generation, world_size);",
        "hub_.restore_generation(record.membership.generation + 1, world_size);"),
    "a comparison always succeeds": (
        "rendezvous/exchange/store.cpp", ": request.expected && entry->value == *request.expected;",
        ": request.expected.has_value();"),
    "requests are not sent again over a new connection": (
        "worker/client/client.cpp", "    requests_.add_unanswered(first);\n", ""),
    "fences are not sent again over a new connection": (
        "worker/client/client.cpp", "    fences_.add_unfinished(first);\n", ""),
    "who gives a fence up says so once, if the connection is there": (
        "worker/client/fences.cpp", "    for (const auto& [key, frame] : given_up_) frames.push_back(frame);\n", ""),
    "a client says that it has answers which it has not": (
        "worker/client/requests.cpp", "static_cast<std::uint32_t>(id - lowest)", "static_cast<std::uint32_t>(lowest * 0)"),
    "a client does not notice that its daemon is silent": (
        "worker/client/keep_alive.cpp", "if (now() - heard_ > silence_max_)", "if (now() - heard_ > silence_max_ * 1'000)"),
    "a slow reader's bytes are counted twice": (
        "rendezvous/links/send_queue.cpp", "item.offset += static_cast<std::size_t>(n);",
        "item.offset += static_cast<std::size_t>(n) + (n > 65'536 ? 1 : 0);"),
}


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def prepare():
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True, text=True).stdout
    for name in files.splitlines():
        with open(f"{ROOT}/{name}", "rb") as source:
            content = source.read()
        if os.path.exists(f"{COPY}/{name}"):
            with open(f"{COPY}/{name}", "rb") as copy:
                if copy.read() == content:
                    continue
        os.makedirs(os.path.dirname(f"{COPY}/{name}"), exist_ok=True)
        shutil.copy(f"{ROOT}/{name}", f"{COPY}/{name}")
    for name, (file, old, _) in MUTANTS.items():
        with open(f"{COPY}/{file}", encoding="utf-8") as source:
            if (count := source.read().count(old)) != 1:
                sys.exit(f"simulate: {name}: {file} has that text {count} times")
    if not os.path.exists(f"{COPY}/build/build.ninja"):
        run("cmake", "-G", "Ninja", "-S", COPY, "-B", f"{COPY}/build", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DDTRUN_TESTS=UNIT", stdout=subprocess.DEVNULL)


def build():
    run("cmake", "--build", f"{COPY}/build", "--target", "test_simulation", stdout=subprocess.DEVNULL)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hunt():
    """What the simulation says, how many runs that took, and how many seconds of a processor."""
    began = processor_seconds()
    seed = 0
    while (used := processor_seconds() - began) < LIMIT:
        seed += 1
        limit = lambda left=int(LIMIT - used) + 1: resource.setrlimit(resource.RLIMIT_CPU, (left, left))
        done = subprocess.run([PROGRAM, TEST], env={**os.environ, "DTRUN_SEED": str(seed)},
                              capture_output=True, text=True, preexec_fn=limit)
        if done.returncode == -signal.SIGKILL or done.returncode == -signal.SIGXCPU:
            break
        if done.returncode != 0:
            found = re.search(r"DTRUN_SEED=\d+\n  (.*(?:\n  .*)?)", done.stdout)
            words = found.group(1) if found else done.stdout[-200:]
            return " ".join(words.split())[:110], seed, processor_seconds() - began
    return None, seed, processor_seconds() - began


def main(names):
    if unknown := [name for name in names if name not in MUTANTS]:
        sys.exit(f"simulate: no mistake is called '{unknown[0]}'; they are: {'; '.join(MUTANTS)}")
    names = names or list(MUTANTS)
    prepare()
    build()
    if (bad := hunt_clean()) is not None:
        sys.exit(f"simulate: without a mistake it finds: {bad}")
    missed = []
    for name in names:
        file, old, new = MUTANTS[name]
        with open(f"{COPY}/{file}", encoding="utf-8") as source:
            text = source.read()
        with open(f"{COPY}/{file}", "w", encoding="utf-8") as source:
            source.write(text.replace(old, new))
        try:
            build()
            found, runs, seconds = hunt()
        finally:
            with open(f"{COPY}/{file}", "w", encoding="utf-8") as source:
                source.write(text)
        if found is None:
            missed.append(name)
        print(f"{'MISSED' if found is None else 'found '} {runs:3} runs {seconds:5.1f} s  {name}"
              + (f"\n         {found}" if found else ""), flush=True)
    print(f"{len(names) - len(missed)} found, {len(missed)} missed")
    return 1 if missed else 0


def hunt_clean():
    done = subprocess.run([PROGRAM, TEST], env={**os.environ, "DTRUN_SEED": "1"}, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout[-300:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
