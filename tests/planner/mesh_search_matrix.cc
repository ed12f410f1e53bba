// On 20 clusters (2 to 1,024 devices, even and uneven) and 3 models: whether the mesh that a search
// chooses, with its lower bound, is within 5 % of the simulator's best. Even clusters, and uneven
// ones of up to 64 devices: of all meshes; larger uneven ones: of a thousand drawn ones and all
// that differ from the choice in one factor.
//
//   ninja -C build tests/planner/mesh_search_matrix
//   build/tests/planner/mesh_search_matrix [--most-devices N] [--done FILE]
//
// FILE gets a line for each cell that was within; another start with the same FILE goes on behind
// them. Ends with 1 where a cell is not.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "planner/mesh/mesh_search.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Nodes of `each` devices; where uneven, every other node is half as fast, has less memory, and
// links of its own.
Cluster cluster_of(int devices, int each, bool uneven, bool shared) {
  Cluster cluster;
  cluster.name = format("%d%s", devices, uneven ? " uneven" : "");
  cluster.types = {{"fast", 40 * kGiB, 4e13}, {"slow", 24 * kGiB, 2e13}};
  cluster.links = {{"bridge", 3'000, 2e11, false},
                   {"bus", 5'000, 3e10, true},
                   {"network", 10'000, 1.25e10, shared},
                   {"old", 20'000, 2.5e9, shared}};
  for (int left = devices; left > 0; left -= each) {
    const bool slow = uneven && cluster.nodes.size() % 2 == 1;
    ClusterNode node{.name = format("node%zu", cluster.nodes.size())};
    node.devices = std::min(left, each);
    node.type = slow ? 1 : 0;
    node.link = slow ? 1 : 0;
    node.uplink = slow ? 3 : 2;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

std::vector<Cluster> clusters() {
  return {cluster_of(2, 2, false, true),    cluster_of(2, 1, true, false),
          cluster_of(3, 2, true, true),     cluster_of(4, 2, false, true),
          cluster_of(4, 2, true, true),     cluster_of(6, 3, false, false),
          cluster_of(8, 8, false, true),    cluster_of(8, 4, true, true),
          cluster_of(12, 4, true, false),   cluster_of(16, 8, false, true),
          cluster_of(16, 4, true, true),    cluster_of(24, 8, true, true),
          cluster_of(32, 8, false, true),   cluster_of(48, 16, true, false),
          cluster_of(64, 8, false, false),  cluster_of(64, 8, true, true),
          cluster_of(128, 8, false, true),  cluster_of(256, 8, true, true),
          cluster_of(1024, 8, false, true), cluster_of(1024, 8, true, true)};
}

struct Trained {
  const char* name;
  bool shares_tensors;
  std::int64_t labels;
  ModelOptions options;
  SampleShape input;
  std::int64_t classes;
};

std::vector<Trained> models() {
  ModelOptions mlp{"mlp"};
  mlp.hidden = {4096, 4096, 4096, 1024};
  ModelOptions small{"gpt"};
  small.width = 256;
  small.layers = 4;
  small.heads = 4;
  ModelOptions gpt2{"gpt"};
  gpt2.width = 768;
  gpt2.layers = 12;
  gpt2.heads = 12;
  return {{"mlp", false, 1, mlp, {1, 28, 28}, 10},
          {"gpt", true, 128, small, {128, 1, 1}, 1000},
          {"gpt2", true, 1024, gpt2, {1024, 1, 1}, 50257}};
}

class Matrix {
 public:
  explicit Matrix(const std::string& done_file) {
    if (done_file.empty()) return;
    std::ifstream before(done_file);
    for (std::string line; std::getline(before, line);)
      done_.insert(line.substr(0, line.find(':')));
    file_.open(done_file, std::ios::app);
  }

  Status compare(const Cluster& cluster, bool even, const Trained& trained) {
    const std::string name =
        cluster.name + " x " + trained.name + format(" on %zu nodes", cluster.nodes.size());
    if (done_.contains(name)) {
      ++within_;
      return {};
    }
    MeshModel model([&](const TensorShare& share, bool flush) {
      ModelOptions options = trained.options;
      options.tied = options.name == "gpt" && flush;
      options.share = share;
      return make_model<float>(options, trained.input, trained.classes);
    });
    const ClusterRates rates;
    MeshProblem problem{.cluster = &cluster, .model = &model, .rates = &rates};
    problem.batch = std::max<std::int64_t>(4 * cluster.devices(), 24);
    problem.labels = trained.labels;
    problem.compressors = {"none", "qsgd:bits=4"};
    problem.shares_tensors = trained.shares_tensors;
    const auto start = std::chrono::steady_clock::now();
    GW_ASSIGN(const MeshSearchResult chosen, search_mesh(problem, {.rows = 1}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    MeshSearchOptions everything{.rows = std::numeric_limits<int>::max(), .phases = false};
    if (!even && cluster.devices() > 64) {
      GW_ASSIGN(everything.among, sample_of(problem, chosen.rows.front().choice));
    }
    GW_ASSIGN(const MeshSearchResult all, search_mesh(problem, everything));
    judge(name, chosen, all, took.count());
    return {};
  }

  int end() const {
    std::printf("%d cells within 5 %%, %d not\n", within_, beyond_);
    return beyond_ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  static Result<std::vector<MeshChoice>> sample_of(const MeshProblem& problem,
                                                   const MeshChoice& choice) {
    constexpr std::size_t kDrawn = 1000;
    GW_ASSIGN(MeshChoices choices, mesh_choices(problem));
    std::vector<MeshChoice> sample = mesh_neighbours(choices.all, choice);
    sample.push_back(choice);
    std::mt19937_64 random(7);
    std::ranges::shuffle(choices.all, random);
    choices.all.resize(std::min(choices.all.size(), kDrawn));
    sample.insert(sample.end(), choices.all.begin(), choices.all.end());
    return sample;
  }

  void judge(const std::string& name, const MeshSearchResult& chosen, const MeshSearchResult& all,
             double seconds) {
    const MeshAnswer& one = chosen.rows.front();
    const double ratio =
        static_cast<double>(one.ticks) / static_cast<double>(all.rows.front().ticks);
    const bool is_within = ratio <= 1.05;
    ++(is_within ? within_ : beyond_);
    const std::string line =
        format("%s: %.4f of the best of %lld simulated; %lld simulated in %.1f s; %s", name.c_str(),
               ratio, static_cast<long long>(all.simulated),
               static_cast<long long>(chosen.simulated), seconds, to_string(one.choice).c_str());
    if (is_within && file_.is_open()) file_ << line << std::endl;
    std::printf("%s%s\n", line.c_str(), is_within ? "" : " BEYOND");
    std::fflush(stdout);
  }

  std::set<std::string> done_;
  std::ofstream file_;
  int within_ = 0;
  int beyond_ = 0;
};

int run(const std::string& done_file, std::int64_t most_devices) {
  Matrix matrix(done_file);
  for (const Cluster& cluster : clusters()) {
    if (cluster.devices() > most_devices) continue;
    const bool even = cluster.name.find("uneven") == std::string::npos;
    for (const Trained& trained : models()) {
      const Status done = matrix.compare(cluster, even, trained);
      if (done.ok()) continue;
      std::fprintf(stderr, "mesh_search_matrix: %s x %s: %s\n", cluster.name.c_str(), trained.name,
                   std::string(done.message()).c_str());
      return EXIT_FAILURE;
    }
  }
  return matrix.end();
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  std::string done_file;
  std::int64_t most_devices = 1024;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--done") done_file = argv[i + 1];
    if (flag == "--most-devices") most_devices = gradwire::to_int(argv[i + 1]).value_or(0);
    if (flag != "--done" && flag != "--most-devices") most_devices = 0;
  }
  if (argc % 2 == 0 || most_devices < 2) {
    std::fprintf(stderr,
                 "mesh_search_matrix: unknown arguments (expected --most-devices N from 2 on, "
                 "--done FILE)\n");
    return 2;
  }
  return gradwire::run(done_file, most_devices);
}
