#include "launcher/mpirun/mpirun_command.h"

#include "base/strings.h"
#include "launcher/plan/binding.h"

#include <fmt/format.h>
#include <algorithm>
#include <iterator>

namespace dtrun::mpirun {
namespace {

using std::string_view;
using Words = std::vector<std::string>;
using Kind = MpirunProgram::Kind;

// From so many hosts on, Open MPI is told to log in to all at once and itself, as horovodrun does.
constexpr std::size_t kManyHosts = 64;

/// The first number behind `what`: "4.1.4" of "mpirun (Open MPI) 4.1.4".
string_view version_after(string_view text, string_view what) {
    const std::size_t found = text.find(what);
    if (found == string_view::npos) return {};
    text.remove_prefix(found + what.size());
    const std::size_t begin = text.find_first_of("0123456789");
    if (begin == string_view::npos || text.substr(0, begin).find('\n') != string_view::npos)
        return {};
    text.remove_prefix(begin);
    return text.substr(0, text.find_first_not_of("0123456789."));
}

std::string with_version(string_view name, string_view version) {
    return version.empty() ? std::string(name) : fmt::format("{} {}", name, version);
}

bool is_remote(const plan::JobHost& host) {
    return host.transport != plan::Transport::local;
}

/// Whether rank after rank goes to host after host, round and round.
bool is_round_robin(const Placement& placement) {
    const int hosts = static_cast<int>(placement.hosts.size());
    return std::ranges::all_of(placement.ranks, [hosts](const RankPlace& place) {
        return place.host == place.rank % hosts;
    });
}

bool is_block(const Placement& placement) {
    return std::ranges::is_sorted(placement.ranks, {}, &RankPlace::host);
}

/// What every rank runs. To mpirun a word ':' begins another program, and Hydra and Open MPI 5 keep
/// rank 0's standard input open for ever if their own is empty.
Words program_words(const Words& program, bool without_input) {
    if (!without_input && std::ranges::find(program, ":") == program.end()) return program;
    std::string text = "exec";
    for (const std::string& word : program) text += " " + shell_quote(word);
    if (without_input) text += " </dev/null";
    return {"/bin/sh", "-c", text};
}

std::string joined(const Words& words, string_view separator) {
    return fmt::format("{}", fmt::join(words, separator));
}

/// Puts one command line together.
class Composer {
public:
    Composer(const plan::JobSpec& spec, const MpirunProgram& mpirun,
             const MpirunCircumstances& circumstances)
        : spec_(spec), options_(spec.options), mpirun_(mpirun), circumstances_(circumstances) {}

    Result<MpirunCommand> compose() {
        add({mpirun_.path});
        if (auto done = check_hosts(); !done) return std::unexpected(done.error());
        if (options_.program.front().starts_with('-'))
            return cannot("it takes the program {} for an option; write it with its directory",
                          options_.program.front());
        auto done = mpirun_.kind == Kind::openmpi ? openmpi() : hydra();
        if (!done) return std::unexpected(done.error());
        // mpirun's own step would wait until dtrun's step frees processors.
        const auto by_slurm = [](const plan::JobHost& host) {
            return host.transport == plan::Transport::slurm;
        };
        if (circumstances_.in_slurm_step && std::ranges::any_of(spec_.hosts, by_slurm))
            command_.environment.emplace_back("SLURM_OVERLAP", "1");
        add(program_words(options_.program, options_.stdin_target.kind == StdinTarget::Kind::none));
        return std::move(command_);
    }

private:
    void add(Words words) { std::ranges::move(words, std::back_inserter(command_.argv)); }

    template <class... A>
    std::unexpected<Error> cannot(fmt::format_string<A...> text, A&&... args) const {
        return fail(Errc::invalid_input, "--mpi mpirun: {}",
                    fmt::format(text, std::forward<A>(args)...));
    }

    std::string count() const { return fmt::to_string(spec_.placement.world_size()); }
    bool any_remote() const { return std::ranges::any_of(spec_.hosts, is_remote); }

    static std::string name_of(const Host& host) {
        return host.address.empty() ? host.name : host.address;
    }

    /// Fails for hosts with settings that no hostfile has a place for.
    Result<void> check_hosts() const {
        constexpr string_view kConfig = "put it into ~/.ssh/config";
        for (const plan::JobHost& target : spec_.hosts) {
            const Host& host = target.host;
            if (name_of(host).find(':') != std::string::npos)
                return cannot(
                    "{}: an IPv6 address cannot be a host's name there; give it a name in "
                    "/etc/hosts",
                    name_of(host));
            if (host.port != 0)
                return cannot("host {}: no place for its port {}; {}, or give one -p for all",
                              host.name, host.port, kConfig);
            if (!host.identity_file.empty())
                return cannot("host {}: no place for its key {}; {}, or give one -i for all",
                              host.name, host.identity_file, kConfig);
            if (!host.user.empty() && mpirun_.kind == Kind::intel)
                return cannot("host {}: {} has no place for user {}; {}", host.name, mpirun_.name,
                              host.user, kConfig);
            for (std::size_t i = 0; i < host.slot_ids.size(); ++i)
                if (host.slot_ids[i] != static_cast<int>(i))
                    return cannot(
                        "host {}: it counts slots and cannot choose slot {}; filter whole "
                        "hosts only",
                        host.name, host.slot_ids[i]);
        }
        return {};
    }

    /// Adds the hosts by -H or its like, or by a file, with `separator` between name and ranks.
    void add_hosts(const char* in_words, const char* in_file, string_view separator) {
        const auto has_user = [](const plan::JobHost& host) { return !host.host.user.empty(); };
        if (spec_.hosts.size() <= kHostsInWords && std::ranges::none_of(spec_.hosts, has_user)) {
            Words items;
            for (const plan::JobHost& host : spec_.hosts)
                items.push_back(fmt::format("{}:{}", name_of(host.host), host.ranks.size()));
            return add({in_words, joined(items, ",")});
        }
        for (const plan::JobHost& host : spec_.hosts) {
            const bool before = mpirun_.kind == Kind::openmpi;
            const std::string& user = host.host.user;
            command_.hostfile += fmt::format(
                "{}{}{}{}{}\n", before && !user.empty() ? user + "@" : "", name_of(host.host),
                separator, host.ranks.size(), !before && !user.empty() ? " user=" + user : "");
        }
        add({in_file, circumstances_.hostfile_path});
    }

    /// One line for each run of ranks on a host.
    void add_machinefile() {
        const std::vector<RankPlace>& ranks = spec_.placement.ranks;
        for (auto first = ranks.begin(); first != ranks.end();) {
            const auto last =
                std::find_if(first, ranks.end(),
                             [host = first->host](const auto& rank) { return rank.host != host; });
            const plan::JobHost& host = spec_.hosts[plan::host_of(*first)];
            command_.hostfile += fmt::format("{}:{}\n", name_of(host.host), last - first);
            first = last;
        }
        add({"-machinefile", circumstances_.hostfile_path});
    }

    /// The arguments of ssh that the user's flags amount to.
    Result<Words> ssh_words() const {
        Words words;
        if (!spec_.access.ssh.command.empty())
            words.assign(spec_.access.ssh.command.begin() + 1, spec_.access.ssh.command.end());
        if (spec_.access.ssh.port != 0)
            words.insert(words.end(), {"-p", fmt::to_string(spec_.access.ssh.port)});
        if (!spec_.access.ssh.identity_file.empty())
            words.insert(words.end(), {"-i", spec_.access.ssh.identity_file});
        if (spec_.access.ssh.accept_new_host_keys)
            words.insert(words.end(), {"-o", "StrictHostKeyChecking=accept-new"});
        if (options_.connect_timeout != plan::Options{}.connect_timeout) {
            const auto seconds =
                std::chrono::ceil<std::chrono::seconds>(options_.connect_timeout).count();
            words.insert(words.end(), {"-o", fmt::format("ConnectTimeout={}", seconds)});
        }
        for (const std::string& word : words)
            if (word.empty() || word.find_first_of(" \t\n\"'") != std::string::npos)
                return cannot("ssh would get {} as several words; put it into ~/.ssh/config",
                              shell_quote(word));
        return words;
    }

    /// The program of --ssh-command; empty: mpirun's own choice.
    std::string ssh_program() const {
        return spec_.access.ssh.command.empty() ? "" : spec_.access.ssh.command.front();
    }

    /// Names of what ranks on other hosts get from here.
    Words forwarded() const {
        Words names;
        const auto remote = std::ranges::find_if(spec_.hosts, is_remote);
        if (remote == spec_.hosts.end()) return names;  // ranks inherit what mpirun has
        for (const auto& [name, value] : spec_.env_of(*remote))
            if (plan::is_variable_name(name)) names.push_back(name);
        return names;
    }

    bool tagged() const {
        return options_.tag ? *options_.tag != plan::Tag::none : spec_.placement.world_size() > 1;
    }

    Result<void> openmpi() {
        const bool prte = mpirun_.major >= 5;
        if (circumstances_.as_root) add({"--allow-run-as-root"});
        add({"-np", count()});
        add_hosts("-H", "--hostfile", " slots=");
        if (auto done = openmpi_mapping(prte); !done) return done;
        if (auto done = openmpi_reaching(prte); !done) return done;
        if (auto done = openmpi_output(prte); !done) return done;
        if (options_.stdin_target.kind == StdinTarget::Kind::all)
            add({"--stdin", "all"});
        else if (options_.stdin_target.kind == StdinTarget::Kind::rank &&
                 options_.stdin_target.rank != 0)
            add({"--stdin", fmt::to_string(options_.stdin_target.rank)});
        if (spec_.directory_required) add({"-wdir", spec_.directory});
        for (const std::string& name : forwarded()) add({"-x", name});
        add(options_.mpi_args);
        return {};
    }

    Result<void> openmpi_mapping(bool prte) {
        if (!options_.binding_args.empty())
            add(options_.binding_args);
        else if (auto done = openmpi_binding(prte); !done)
            return done;
        if (prte && options_.oversubscribe && !options_.binding_args.empty())
            return cannot(
                "--binding-args takes the place of --oversubscribe with {}; write it there "
                "as --map-by slot:OVERSUBSCRIBE",
                mpirun_.name);
        if (options_.oversubscribe && !prte) add({"--oversubscribe"});
        return {};
    }

    /// dtrun's own words for binding in those of Open MPI.
    Result<void> openmpi_binding(bool prte) {
        const BindingRequest request = plan::binding_request(options_);
        const char* const to = object_of(request.to);
        if (to == nullptr || request.by == MapWithin::gpu) return no_object(request);
        std::string by = options_.map_by == MapBy::node ? "node" : object_of(request.by);
        if (request.cpus_per_rank > 0 && request.to != BindTo::none)
            by += fmt::format(":PE={}", request.cpus_per_rank);
        if (prte && options_.oversubscribe) by += ":OVERSUBSCRIBE";
        add({"--bind-to", to, "--map-by", by});
        if (request.report && prte) add({"--display", "bindings"});
        if (request.report && !prte) add({"--report-bindings"});
        return {};
    }

    /// Its word for what ranks are bound to; nullptr: it has none.
    static const char* object_of(BindTo to) {
        switch (to) {
            case BindTo::none:
                return "none";
            case BindTo::core:
                return "core";
            case BindTo::l3:
                return "l3cache";
            case BindTo::numa:
                return "numa";
            case BindTo::socket:
                return "socket";
            default:
                return nullptr;
        }
    }

    static const char* object_of(MapWithin by) {
        switch (by) {
            case MapWithin::core:
                return "core";
            case MapWithin::l3:
                return "l3cache";
            case MapWithin::numa:
                return "numa";
            case MapWithin::socket:
                return "socket";
            default:
                return "slot";
        }
    }

    std::unexpected<Error> no_object(const BindingRequest& request) const {
        return cannot(
            "{} knows no {}; say --bind-to core, l3, numa or socket, or let dtrun start the "
            "ranks (--mpi auto)",
            mpirun_.name, joined(plan::binding_words(request), " "));
    }

    Result<void> openmpi_reaching(bool prte) {
        const char* const mca = prte ? "--prtemca" : "--mca";
        const std::string ssh = prte ? "ssh" : "rsh";
        if (any_remote()) {
            if (options_.transport == plan::Transport::ssh) add({mca, "plm", ssh});
            if (options_.transport == plan::Transport::slurm) add({mca, "plm", "slurm"});
            const auto words = ssh_words();
            if (!words) return std::unexpected(words.error());
            const std::string program = ssh_program();
            if (program.find_first_of(": \t\n") != std::string::npos)
                return cannot("--ssh-command: {} cannot be told of {}; link it to a plain name",
                              mpirun_.name, shell_quote(program));
            if (!program.empty()) add({mca, "plm_" + ssh + "_agent", program});
            if (!words->empty()) add({mca, "plm_" + ssh + "_args", joined(*words, " ")});
        }
        if (spec_.hosts.size() >= kManyHosts)
            add({mca, "plm_" + ssh + "_no_tree_spawn", "true", mca,
                 "plm_" + ssh + "_num_concurrent", fmt::to_string(spec_.hosts.size())});
        if (options_.network_interfaces.empty()) return {};
        const std::string interfaces = joined(options_.network_interfaces, ",");
        add({"--mca", "btl_tcp_if_include", interfaces});
        add({mca, prte ? "prte_if_include" : "oob_tcp_if_include", interfaces});
        return {};
    }

    Result<void> openmpi_output(bool prte) {
        const auto& tag = options_.tag;
        if (tag && *tag != plan::Tag::none && *tag != plan::Tag::rank && *tag != plan::Tag::horovod)
            return cannot("{} tags lines with ranks only; use --tag rank or none", mpirun_.name);
        if (prte) {
            Words forms;
            if (tagged()) forms.emplace_back("tag");
            if (options_.timestamps) forms.emplace_back("timestamp");
            if (!forms.empty()) add({"--output", joined(forms, ",")});
            return {};
        }
        if (tagged()) add({"--tag-output"});
        if (options_.timestamps) add({"--timestamp-output"});
        return {};
    }

    Result<void> hydra() {
        if (auto done = hydra_mapping(); !done) return done;
        if (auto done = hydra_reaching(); !done) return done;
        if (auto done = hydra_output(); !done) return done;
        if (auto done = hydra_stdin(); !done) return done;
        if (spec_.directory_required) add({"-wdir", spec_.directory});
        if (const Words names = forwarded(); !names.empty()) add({"-genvlist", joined(names, ",")});
        add(options_.binding_args);
        add(options_.mpi_args);
        add({"-n", count()});
        return {};
    }

    Result<void> hydra_mapping() {
        if (mpirun_.kind == Kind::intel) {
            add_machinefile();
            const bool binds = options_.binding != plan::BindingOptions{};
            if (binds)
                return cannot(
                    "{} binds by its own variables; give them as -x I_MPI_PIN_DOMAIN=numa",
                    mpirun_.name);
            return {};
        }
        add_hosts("-hosts", "-f", ":");
        if (auto done = hydra_binding(); !done) return done;
        if (is_block(spec_.placement)) return {};
        if (!is_round_robin(spec_.placement))
            return cannot(
                "{} cannot give ranks to hosts in turn if these have different numbers of "
                "them; use --map-by slot",
                mpirun_.name);
        add({"-ppn", "1"});
        return {};
    }

    /// In words of MPICH, which binds nothing by itself.
    Result<void> hydra_binding() {
        const BindingRequest request = plan::binding_request(options_);
        const char* const to = object_of(request.to);
        if (to == nullptr || request.by == MapWithin::gpu) return no_object(request);
        const auto hydra_word = [](string_view object) {
            return std::string(object == "l3cache" ? "l3" : object);
        };
        if (request.report) command_.environment.emplace_back("HYDRA_TOPO_DEBUG", "1");
        if (request.to == BindTo::none) return {};
        if (request.cpus_per_rank > 0 && request.to != BindTo::core) return no_object(request);
        const std::string cores =
            request.cpus_per_rank > 0 ? fmt::format(":{}", request.cpus_per_rank) : "";
        add({"-bind-to", hydra_word(to) + cores});
        if (request.by != MapWithin::slot) add({"-map-by", hydra_word(object_of(request.by))});
        return {};
    }

    Result<void> hydra_reaching() {
        const bool intel = mpirun_.kind == Kind::intel;
        if (any_remote()) {
            const auto words = ssh_words();
            if (!words) return std::unexpected(words.error());
            const std::string program = ssh_program();
            // In a Slurm allocation the default is srun, which these words are not meant for.
            const bool ssh =
                options_.transport == plan::Transport::ssh || !words->empty() || !program.empty();
            if (ssh) add({"-bootstrap", "ssh"});
            if (options_.transport == plan::Transport::slurm) add({"-bootstrap", "slurm"});
            if (!program.empty()) add({"-bootstrap-exec", program});
            // An empty value hides the one that Slurm sets for srun.
            if (ssh)
                command_.environment.emplace_back(
                    intel ? "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS" : "HYDRA_LAUNCHER_EXTRA_ARGS",
                    joined(*words, " "));
        }
        const Words& interfaces = options_.network_interfaces;
        if (interfaces.size() > 1)
            return cannot("{} takes one of --network-interfaces {}; name only that", mpirun_.name,
                          joined(interfaces, ","));
        if (!interfaces.empty()) add({"-iface", interfaces.front()});
        return {};
    }

    Result<void> hydra_output() {
        plan::Tag tag = tagged() ? options_.tag.value_or(plan::Tag::rank) : plan::Tag::none;
        if (tag == plan::Tag::horovod) tag = plan::Tag::rank;
        if (options_.timestamps) tag = tag.timed();
        if (tag == plan::Tag::rank) {
            add({"-prepend-rank"});
            return {};
        }
        const auto pattern = tag.hydra_pattern();
        if (!pattern) return cannot("{} has no --tag with {{stream}}", mpirun_.name);
        if (!pattern->empty()) add({"-prepend-pattern", *pattern});
        return {};
    }

    Result<void> hydra_stdin() {
        const StdinTarget& target = options_.stdin_target;
        const bool all = target.kind == StdinTarget::Kind::all;
        if (target.kind == StdinTarget::Kind::none || (!all && target.rank == 0)) return {};
        if (mpirun_.kind == Kind::mpich)
            return cannot("{} gives standard input to rank 0 only; use --stdin 0 or none",
                          mpirun_.name);
        add({"-s", all ? "all" : fmt::to_string(target.rank)});
        return {};
    }

    const plan::JobSpec& spec_;
    const plan::Options& options_;
    const MpirunProgram& mpirun_;
    const MpirunCircumstances& circumstances_;
    MpirunCommand command_;
};

}  // namespace

Result<MpirunProgram> identify_mpirun(std::string path, string_view text) {
    const auto has = [text](string_view word) { return text.find(word) != string_view::npos; };
    MpirunProgram mpirun;
    mpirun.path = std::move(path);
    if (has("IBM Spectrum MPI")) {
        mpirun.name = with_version("IBM Spectrum MPI", version_after(text, "IBM Spectrum MPI"));
    } else if (has("Open MPI") || has("OpenRTE")) {
        const string_view version =
            version_after(text, has("Open MPI") ? "(Open MPI)" : "(OpenRTE)");
        mpirun.major =
            static_cast<int>(to_int(version.substr(0, version.find('.')), 0, 1'000).value_or(0));
        mpirun.name = with_version("Open MPI", version);
    } else if (has("Intel(R) MPI")) {
        mpirun.kind = Kind::intel;
        mpirun.name = with_version("Intel MPI", version_after(text, "Version"));
    } else if (has("MVAPICH") || has("MPICH") || has("HYDRA")) {
        mpirun.kind = Kind::mpich;
        mpirun.name =
            with_version(has("MVAPICH") ? "MVAPICH" : "MPICH", version_after(text, "Version:"));
    } else {
        text = trim(text);
        return fail(
            Errc::not_found,
            "{} --version names none of Open MPI, MPICH, MVAPICH, Intel MPI and IBM Spectrum "
            "MPI: '{}'",
            mpirun.path, text.substr(0, std::min<std::size_t>(text.find('\n'), 200)));
    }
    return mpirun;
}

Result<MpirunCommand> compose_mpirun(const plan::JobSpec& spec, const MpirunProgram& mpirun,
                                     const MpirunCircumstances& circumstances) {
    return Composer(spec, mpirun, circumstances).compose();
}

std::string mpirun_command_text(const MpirunCommand& command) {
    std::string text;
    for (const auto& [name, value] : command.environment)
        text += fmt::format("{}={} ", name, shell_quote(value));
    for (const std::string& word : command.argv)
        text += shell_quote(word) + (&word == &command.argv.back() ? "" : " ");
    return text;
}

}  // namespace dtrun::mpirun
