#include "compiler/plan/ScheduleCandidates.h"

#include "compiler/Targets.h"
#include "compiler/plan/IntegerSums.h"
#include "compiler/plan/Legality.h"
#include "compiler/plan/Resources.h"
#include "dsl/Division.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace rho::compiler {

namespace {

using Roles = dsl::ScheduleDecl::Roles;
using Sums = dsl::ScheduleDecl::Sums;

constexpr int64_t warpsOfThree = 3 * 4; // of three warpgroups, along n

// k of one 128-byte row of activations, and of the rows that a tile has at most: few sums leave
// registers for the codes of more.
int64_t rowK(const PlacedGemm &placed) { return int64_t{4} * placed.mmaK; }
int64_t mostTileK(const PlacedGemm &placed, int64_t tileM) {
  return rowK(placed) * (tileM <= 16 ? 4 : 2);
}

// Of weight rows that are no whole instructions of wgmma, where tiles that are leave SMs without
// outputs: as many as give each SM one tile, or two, and all of k, so that no sums of parts meet.
// All CTAs read all activations: with scales along k, of rows past the batch, and of 16 bits where
// they are many, that took longer than it saved.
std::vector<dsl::ScheduleDecl::Tile> narrowTiles(const PlacedGemm &placed, const Problem &problem,
                                                 int64_t sms, bool dependent) {
  constexpr int64_t mostBatch = 16, leastRows = 32, mostRows = 240;
  constexpr int64_t fewRows = 48, mostWide = 96, longK = 6144;
  std::vector<dsl::ScheduleDecl::Tile> result;
  if (problem.m > mostBatch || placed.scalesColumns())
    return result;
  bool isLong = problem.k > longK;
  int64_t batch = problem.m <= 8 ? 8 : mostBatch;
  constexpr int64_t mostCodes = int64_t{32} * 512; // with longer tiles few are on their way
  for (int64_t tiles : {1, 2}) {                   // of an SM
    int64_t rows = std::max(leastRows, roundUp(divideUp(problem.n, tiles * sms), leastWarpRows));
    bool isFew = rows <= fewRows;
    bool readsMany = placed.isWide() && !isFew && (isLong || rows > mostWide) && batch == mostBatch;
    if (rows % Geometry::instructionRows == 0 || rows > mostRows || (isFew && tiles > 1) ||
        readsMany)
      continue;
    // Of few rows with a long k, activations of 16 bits take longer tiles, and no others.
    const bool isThin = placed.isWide() && isFew && isLong;
    const int64_t mostK = mostTileK(placed, batch) * (isThin ? 2 : 1);
    auto take = [&](int64_t k, bool isUsual) {
      if (isUsual && k % rowK(placed) == 0 && k <= mostK)
        result.push_back({batch, rows, k});
    };
    take(128, !isFew);
    take(256, !isThin);
    take(512, rows * 512 <= mostCodes && (isThin || !isLong || (isFew && dependent)));
  }
  return result;
}

// Up to so many rows warpgroups have tiles that the batch divides into evenly. With more a part of
// the last tile is little.
constexpr int64_t mostFittedRows = 4 * Geometry::mostBatch;
constexpr int64_t leastFittedTile = 3 * Geometry::batchUnit;

// Batch rows of a tile: powers of two, and for warpgroups as many as the fewest tiles, or one more,
// have each. Whole tiles of 128 leave nothing to gain. Warps or clusters that the user fixes may
// take more rows than there are, and a cluster as many as its CTAs have equal shares of.
std::vector<int64_t> batchCandidates(int64_t m, bool uniform, const dsl::ScheduleDecl &schedule) {
  constexpr int64_t most = Geometry::mostBatch, unit = Geometry::batchUnit;
  std::vector<int64_t> result;
  for (int64_t rows = 8; rows <= (uniform ? most / 2 : most); rows *= 2)
    if (rows <= 16 || rows < 2 * m || schedule.warps || schedule.cluster)
      result.push_back(rows);
  if (uniform)
    return result;
  if (m <= mostFittedRows && m % (most / 2) != 0) {
    int64_t fewest = divideUp(m, most);
    for (int64_t tiles : {fewest, fewest + 1}) {
      int64_t rows = roundUp(divideUp(m, tiles), unit);
      if (rows >= leastFittedTile && std::ranges::find(result, rows) == result.end())
        result.push_back(rows);
    }
  }
  const int64_t shares = Geometry::swizzledRows * (schedule.cluster ? schedule.cluster->n : 1);
  std::erase_if(result, [&](int64_t rows) { return rows % shares != 0; });
  if (const int64_t step = std::lcm(unit, shares); result.empty())
    for (int64_t rows = step; rows <= most; rows += step)
      result.push_back(rows);
  return result;
}

std::vector<dsl::ScheduleDecl::Tile> tileCandidates(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                                    Roles roles, const Problem &problem,
                                                    int64_t sms, bool dependent, Variety variety) {
  if (gemm.schedule.tile)
    return {*gemm.schedule.tile};
  std::vector<dsl::ScheduleDecl::Tile> result;
  if (roles == Roles::Gemv) {
    std::vector<int64_t> rows = {leastWarpRows, 2 * leastWarpRows, 4 * leastWarpRows};
    if (const auto &warps = gemm.schedule.warps) {
      std::erase_if(rows, [&](int64_t n) { return !dividesRows(n, warps->n); });
      if (rows.empty())
        rows = {leastWarpRows * warps->n, 2 * leastWarpRows * warps->n};
    }
    for (int64_t m = largestGemvBatch; m >= 1; m /= 2) // fewer rows where more do not fit
      for (int64_t n : rows)
        for (int64_t k : {64, 128, 256})
          if (m < 2 * problem.m)
            result.push_back({m, n, k});
    return result;
  }
  bool uniform = roles == Roles::Uniform;
  constexpr int64_t ofThree = 3 * Geometry::instructionRows;
  // With fewer rows of the batch three lost where their sums are not scaled on the way.
  int64_t leastOfThree = placed.flushK > 0 ? 8 : 64;
  for (int64_t m : batchCandidates(problem.m, uniform, gemm.schedule))
    for (int64_t n : {int64_t{64}, int64_t{128}, ofThree, int64_t{256}}) {
      if (n == ofThree && (uniform || m < leastOfThree))
        continue;
      for (int64_t k : {64, 128, 256, 512})
        if (uniform ? k <= 256 : k % rowK(placed) == 0 && k <= mostTileK(placed, m))
          result.push_back({m, n, k});
    }
  if (!uniform)
    for (const dsl::ScheduleDecl::Tile &tile : narrowTiles(placed, problem, sms, dependent))
      result.push_back(tile);
  if (variety == Variety::Usual || !gemm.schedule.warps)
    return result;
  const int64_t warps = gemm.schedule.warps->n;
  std::erase_if(result, [&](const auto &tile) { return !dividesRows(tile.n, warps); });
  for (int64_t m : batchCandidates(problem.m, uniform, gemm.schedule))
    for (int64_t rows : {leastWarpRows, 2 * leastWarpRows})
      for (int64_t k : {64, 128, 256})
        result.push_back({m, rows * warps, k});
  return result;
}

// Every number of warps that a CTA of these roles may have, those that fit most tiles first; of a
// declared tile those among which its rows can be divided, or one for which they cannot.
std::vector<dsl::ScheduleDecl::Warps> allWarps(const dsl::Gemm &gemm, Roles roles,
                                               const dsl::ScheduleDecl::Tile &tile) {
  if (gemm.schedule.warps)
    return {*gemm.schedule.warps};
  std::vector<dsl::ScheduleDecl::Warps> result;
  for (int64_t k : {1, 2, 4, 8, 16})
    for (int64_t m : {1, 2, 4})
      for (int64_t n : {4, 8, 16, 2, 12, 6, 10, 14, 1, 3, 5, 7, 9, 11, 13, 15})
        if (m * n * k <= Geometry::mostWarps && (roles == Roles::Uniform ? k : m) == 1 &&
            dividesRows(tile.n, n))
          result.push_back({m, n, k});
  if (result.empty())
    result.push_back({1, 1, 1});
  return result;
}

// Whether warps of these roles have runs of k.
bool takesRuns(const dsl::Gemm &gemm, const PlacedGemm &placed, Roles roles,
               const dsl::ScheduleDecl::Tile &tile) {
  Schedule schedule;
  schedule.tileM = tile.m;
  schedule.tileN = tile.n;
  schedule.tileK = tile.k;
  schedule.roles = roles;
  schedule.packing = gemm.schedule.packing.value_or(schedule.packing);
  return makeGeometry(placed, schedule).hasRuns;
}

std::vector<dsl::ScheduleDecl::Warps> warpCandidates(const dsl::Gemm &gemm,
                                                     const PlacedGemm &placed, Roles roles,
                                                     const dsl::ScheduleDecl::Tile &tile,
                                                     int64_t batch) {
  if (gemm.schedule.warps)
    return {*gemm.schedule.warps};
  // Four warpgroups won where integer sums are scaled. In panels they have 16 rows a warp, as
  // kernels for more rows of the batch do.
  constexpr int64_t warpsOfFour = 4 * 4;
  bool mayBeFour = gemm.schedule.packing == dsl::ScheduleDecl::Packing::Panels ||
                   (placed.flushK > 0 && placed.integerAccumulator);
  const int64_t mostAlongN = mayBeFour ? warpsOfFour : warpsOfThree;
  if (roles == Roles::Gemv) {
    std::vector<dsl::ScheduleDecl::Warps> result;
    for (int64_t n : {1, 2, 4})
      for (int64_t k : {2, 4, 8, 16})
        if (dividesRows(tile.n, n) && n * k >= 4 && n * k <= Geometry::mostWarps)
          result.push_back({1, n, k});
    return result;
  }
  std::vector<dsl::ScheduleDecl::Warps> result;
  if (roles != Roles::Uniform) {
    // 64 or 128 weight rows for each warpgroup; groups along k where sums are small. Three of them
    // never won but where partial sums are scaled, and of five warps, which they make 15. With more
    // rows of the batch many groups have too few registers to run ahead.
    int64_t mostWarps = tile.m <= 32 ? Geometry::mostWarps : 12;
    // Stored blocks that a warpgroup's instruction can have are not cut up for single warps.
    int64_t blockRows = placed.residual ? gemm.weight.residual->blocks.rows : 0;
    auto cutsBlocks = [&](int64_t n) {
      return blockRows > 0 && blockRows % Geometry::instructionRows == 0 &&
             blockRows % (4 * tile.n / n) != 0;
    };
    bool byInstruction = tile.n % Geometry::instructionRows == 0;
    // Warps with runs of k that read activations from shared memory for twice the rows won in four
    // groups along k, where those of the batch are in one tile.
    auto isPair = [&](int64_t n, int64_t k) {
      return n == 2 && k == 4 && tile.n == Geometry::instructionRows && batch <= tile.m &&
             takesRuns(gemm, placed, roles, tile);
    };
    const int64_t mostOfGroups = byInstruction ? 8192 : 2048; // outputs whose sums meet
    for (int64_t n = 2; n <= mostAlongN; ++n)
      for (int64_t k : {1, 2, 3, 4, 6, 8}) {
        int64_t most = n == warpsOfFour ? n : mostWarps;
        bool isUsual =
            byInstruction ? (n % 4 == 0 && k <= 4) || isPair(n, k) : n * k % 4 == 0 || n > 4;
        if (isUsual && dividesRows(tile.n, n) && tile.n <= 32 * n && n * k <= most &&
            (k != 3 || placed.flushK > 0 || n == 5) && !cutsBlocks(n) &&
            (k == 1 || tile.m * tile.n <= mostOfGroups))
          result.push_back({1, n, k});
      }
    return result;
  }
  for (int64_t m : {1, 2, 4})
    for (int64_t n = 2; n <= 8; ++n)
      if (m * n >= 4 && m * n <= 8 && dividesRows(tile.n, n) &&
          tile.m / m >= Geometry::leastMmaRows)
        result.push_back({m, n});
  return result;
}

// Of equal predictions the first wins: a ring of stages has no cost but what it holds, while copies
// that all threads start have a prologue. Each of `groups` of warps along k has as many stages.
// With short k tiles more than twelve took up to 1.09 times as long, and saved little elsewhere.
std::vector<int> pipelineCandidates(const dsl::ScheduleDecl &own, Roles roles, int64_t groups,
                                    int64_t tileK, Variety variety) {
  if (own.pipeline)
    return {static_cast<int>(*own.pipeline)};
  if (variety == Variety::All) {
    std::vector<int> result = {4, 3, 2, 8};
    if (own.warps && own.warps->k > 1)
      for (auto stages = own.warps->k; stages <= dsl::ScheduleDecl::mostStages;
           stages += own.warps->k)
        result.push_back(static_cast<int>(stages));
    return result;
  }
  if (roles == Roles::Gemv)
    return {2, 3, 4};
  if (roles == Roles::Uniform)
    return {3, 4, 6};
  constexpr int mostOfShort = 12;
  constexpr int64_t longK = 256;
  std::vector<int> result = {8, 10, 12, 16, 9, 6, 5, 4, 3, 2};
  std::erase_if(result, [&](int stages) {
    return stages % groups != 0 || (stages > mostOfShort && tileK < longK);
  });
  return result;
}

// CTAs of a persistent grid, at most. A cluster lies in one GPC, which has 16 or 18 SMs on a whole
// Hopper: one of four or eight SMs leaves the last two idle. Of how many fewer a GPU's own have its
// driver knows, which the runtime asks.
int64_t residentCtas(const DeviceModel &device, const Schedule &schedule) {
  constexpr int64_t wholeSms = 16, moreSms = 2;
  int64_t sms = device.smCount, perSm = schedule.ctasPerSm;
  if (moreSms * perSm % schedule.clusterN != 0)
    sms = sms / wholeSms * wholeSms;
  return sms * perSm / schedule.clusterN * schedule.clusterN;
}

// What follows from a schedule on a device: how many CTAs share an SM, and a persistent grid where
// there are more tiles than CTAs at a time.
void settleResidency(const dsl::Gemm &gemm, const PlacedGemm &placed, const Problem &problem,
                     const DeviceModel &device, Schedule &schedule) {
  Geometry g = makeGeometry(placed, schedule);
  if (!g.specialized() && !g.gemv() && !g.streamK)
    return;
  if (!dividesRows(schedule.tileN, schedule.warpsN))
    return; // such a schedule is refused: objection()
  constexpr int64_t threadsPerSm = 1536;
  const bool persists = !g.gemv() && schedule.splitK <= 1;
  schedule.residentCtas = persists ? device.smCount : 0;
  int64_t bytes = sharedBytes(gemm, placed, g, schedule, problem) + DeviceModel::reservedPerCta;
  // A gemv has no use for more than there are.
  int64_t most = g.gemv() ? std::min(threadsPerSm / g.threads(),
                                     divideUp(divideUp(problem.n, g.tileN), device.smCount))
                          : 4;
  schedule.ctasPerSm = 1;
  for (int64_t more = 2; more <= most; ++more) {
    auto [registers, limit] = registerUse(gemm, placed, g, schedule.pipeline, more);
    if (bytes * more <= device.sharedPerSm && registers <= limit)
      schedule.ctasPerSm = more;
  }
  if (!persists)
    return;
  schedule.residentCtas = residentCtas(device, schedule);
  // Where CTAs of the next kernel start beside this one's, those without a loop were slower.
  const int64_t tiles = outputTiles(problem, schedule.tileM, schedule.tileN, schedule.clusterN);
  if (!schedule.streamsK() && schedule.ctasPerSm == 1 && tiles <= schedule.residentCtas)
    schedule.residentCtas = 0;
}

// Whether a ring is deeper than what won: of two CTAs on an SM, which have one each, where the next
// kernel starts beside this one and tiles have few rows of the batch; of a residual, whose pieces
// need places for all stages, none was measured.
bool isTooDeep(const PlacedGemm &placed, const Schedule &schedule) {
  constexpr int mostOfTwo = 8, mostOfResidual = 9;
  constexpr int64_t fewRows = 8;
  const bool besideFew = schedule.dependent && schedule.ctasPerSm > 1 && schedule.tileM <= fewRows;
  return (besideFew && schedule.pipeline > mostOfTwo) ||
         (placed.storesBlocks() && schedule.pipeline > mostOfResidual);
}

// How many CTAs may have the shares of equal shares of k. Of a small weight fewer CTAs have fuller
// shares, so that fewer of them meet in an output (RaZeR, Chen et al. 2025, appendix E); as many as
// divide each output evenly add no sums but those of its own parts.
std::vector<int64_t> residentCandidates(const dsl::ScheduleDecl &own, const Schedule &schedule,
                                        const Problem &problem) {
  if (!schedule.streamsK())
    return {schedule.residentCtas};
  int64_t most = schedule.residentCtas;
  if (own.ctas)
    return {std::min(most, *own.ctas)};
  std::vector<int64_t> result{most};
  for (int64_t eighths : {7, 6, 5, 4, 3, 2})
    result.push_back(std::max<int64_t>(1, most * eighths / 8));
  int64_t tiles = outputTiles(problem, schedule.tileM, schedule.tileN);
  if (most / tiles > 0)
    result.push_back(most / tiles * tiles);
  return result;
}

// The parts of a split are added in memory, or within a cluster of them: faster where each CTA has
// an SM for itself; of more parts and more CTAs than that slower, since a cluster waits for room in
// one GPC.
dsl::ScheduleDecl::Cluster chooseCluster(const dsl::ScheduleDecl &own, Roles roles,
                                         const Problem &problem,
                                         const dsl::ScheduleDecl::Tile &tile, int64_t split,
                                         int64_t sms) {
  if (own.cluster)
    return *own.cluster;
  int64_t ctas = outputTiles(problem, tile.m, tile.n) * split;
  bool together = roles == Roles::ImFP && split == 2 && ctas <= sms;
  return {1, together ? split : 1};
}

constexpr int64_t sharingCtas = 2;

// Whether so many CTAs of a cluster along n may share what they read of activations, which copies
// of one of them bring to all. With few rows, or one wave of tiles, that costs more than it saves;
// of four CTAs, which leave SMs idle, more than of two (results/h200/clusters.csv).
bool mayShareActivations(const dsl::ScheduleDecl &own, const Schedule &schedule,
                         const Problem &problem, int64_t sms) {
  constexpr int64_t leastRows = 1024;
  const int64_t tiles = outputTiles(problem, schedule.tileM, schedule.tileN);
  return !own.cluster && schedule.roles == Roles::ImFP && schedule.splitK == 1 &&
         problem.m >= leastRows && 2 * tiles > 3 * sms &&
         schedule.residentCtas % sharingCtas == 0 &&
         divideUp(problem.n, schedule.tileN) % sharingCtas == 0 &&
         schedule.tileM % (Geometry::swizzledRows * sharingCtas) == 0;
}

// In how many parts k may be divided. With more rows of the batch equal shares lost wherever
// measured: CTAs side by side then read different k tiles of the same weights. So they did of
// activations in parts where warps have roles (results/h200/stream.csv).
std::vector<int64_t> splitCandidates(const dsl::Gemm &gemm, const PlacedGemm &placed, Roles roles,
                                     const Problem &problem) {
  const dsl::ScheduleDecl &own = gemm.schedule;
  if (own.splitK)
    return {*own.splitK};
  if (own.cluster && own.cluster->k > 1)
    return {own.cluster->k};
  if (roles == Roles::Gemv)
    return {1};
  std::vector<int64_t> result{1, 2, 3, 4, 6, 8, 12, 16};
  constexpr int64_t mostRows = 512;
  const bool mayStream =
      roles == Roles::Uniform || (roles == Roles::ImFP && !gemm.activation.partition);
  if (mayStream && problem.m <= mostRows && !placed.residual)
    result.push_back(dsl::ScheduleDecl::streamK);
  return result;
}

// Where equal shares were faster: not where several tiles of the batch take turns on the same
// weights and CTAs have many tiles, or three warpgroups each; nor where three have operands of 16
// bits and many rows of the batch. Two CTAs of an SM were not measured.
bool mayShareEqually(const PlacedGemm &placed, const Schedule &schedule, const Problem &problem) {
  constexpr int64_t mostTiles = 2; // of a CTA
  constexpr int64_t mostBatchOfThree = 64;
  int64_t tilesM = divideUp(problem.m, schedule.tileM);
  int64_t tiles = tilesM * divideUp(problem.n, schedule.tileN);
  if (schedule.warpsN == warpsOfThree &&
      (tilesM > 1 || (placed.isWide() && schedule.tileM > mostBatchOfThree)))
    return false;
  return schedule.ctasPerSm == 1 && (tilesM == 1 || tiles <= mostTiles * schedule.residentCtas);
}

} // namespace

std::vector<Schedule> scheduleCandidates(const dsl::Gemm &gemm, const PlacedGemm &placed,
                                         Roles roles, const Problem &problem,
                                         const DeviceModel &device, Variety variety) {
  const dsl::ScheduleDecl &own = gemm.schedule;
  // An instruction of full throughput in place of a conversion.
  Sums sums = own.sums.value_or(
      whyNotBiased(gemm, placed, problem, roles).empty() ? Sums::Biased : Sums::Converted);
  const bool dependent =
      own.dependent.value_or(false) && targetOf(device.target).hasDependentLaunch;
  const std::vector<int64_t> splits = splitCandidates(gemm, placed, roles, problem);
  std::vector<Schedule> result;
  for (const dsl::ScheduleDecl::Tile &tile :
       tileCandidates(gemm, placed, roles, problem, device.smCount, dependent, variety))
    for (const dsl::ScheduleDecl::Warps &warps :
         variety == Variety::All ? allWarps(gemm, roles, tile)
                                 : warpCandidates(gemm, placed, roles, tile, problem.m))
      for (int64_t split : splits) {
        dsl::ScheduleDecl::Cluster cluster =
            chooseCluster(own, roles, problem, tile, split, device.smCount);
        for (int pipeline : pipelineCandidates(own, roles, warps.k, tile.k, variety)) {
          Schedule schedule;
          schedule.tileM = tile.m;
          schedule.tileN = tile.n;
          schedule.tileK = tile.k;
          schedule.warpsM = warps.m;
          schedule.warpsN = warps.n;
          schedule.warpsK = warps.k;
          schedule.pipeline = pipeline;
          schedule.splitK = split;
          schedule.roles = roles;
          schedule.sums = sums;
          schedule.packing = own.packing.value_or(schedule.packing);
          schedule.tables = placed.tables();
          schedule.clusterN = cluster.n;
          schedule.clusterK = cluster.k;
          schedule.dependent = dependent;
          settleResidency(gemm, placed, problem, device, schedule);
          if (!own.pipeline && variety == Variety::Usual && isTooDeep(placed, schedule))
            continue;
          bool streams = split == dsl::ScheduleDecl::streamK;
          if (streams && !own.splitK && !mayShareEqually(placed, schedule, problem))
            continue;
          for (int64_t resident : residentCandidates(own, schedule, problem)) {
            schedule.residentCtas = resident;
            result.push_back(schedule);
          }
          if (mayShareActivations(own, schedule, problem, device.smCount)) {
            schedule.clusterN = sharingCtas;
            result.push_back(schedule);
          }
        }
      }
  return result;
}

bool tilesFitBlocks(const dsl::Gemm &gemm, const PlacedGemm &placed, Roles roles) {
  if (placed.parts.empty() || roles == Roles::Uniform)
    return true;
  return std::all_of(placed.parts.begin(), placed.parts.end(), [&](const PlacedGemm &part) {
    return gemm.activation.partition->blocks.k % rowK(part) == 0;
  });
}

// GPUs of this target have RaZeR's measurements (Tables 16 and 17) of float products on the CUDA
// cores, for one row: 1.05 to 1.67 times as fast as its kernels for tensor cores.
constexpr std::string_view razerTarget = "sm_120a";

std::vector<Roles> roleCandidates(const dsl::Gemm &gemm, const DeviceModel &device) {
  if (gemm.schedule.roles)
    return {*gemm.schedule.roles};
  if (gemm.schedule.tile && gemm.schedule.tile->m < Geometry::leastMmaRows)
    return {Roles::Gemv}; // nothing else has such a tile
  const bool hasWgmma = targetOf(device.target).hasWgmma;
  const auto &cluster = gemm.schedule.cluster;
  if (hasWgmma && cluster && cluster->n * cluster->k > 1)
    return {Roles::ImFP}; // nor clusters
  std::vector<Roles> roles{Roles::Uniform};
  if (hasWgmma)
    roles.push_back(Roles::ImFP);
  if (!gemm.activation.partition && (hasWgmma || device.target == razerTarget))
    roles.push_back(Roles::Gemv);
  return roles;
}

std::vector<dsl::ScheduleDecl::Scales> scalesCandidates(const dsl::Gemm &gemm) {
  using enum dsl::ScheduleDecl::Scales;
  return choices(gemm.schedule.scales, {Accumulator, Operand, Hardware});
}

std::vector<dsl::ScheduleDecl::Tables> tableCandidates(const dsl::Gemm &gemm) {
  using enum dsl::ScheduleDecl::Tables;
  return choices(gemm.schedule.tables, {Registers, Shared, Mixed});
}

std::string_view whyNotTrusted(const std::vector<Roles> &considered, const PlacedGemm &placed,
                               const Schedule &schedule, const Problem &problem,
                               const DeviceModel &device) {
  const bool isGemv = schedule.roles == Roles::Gemv;
  const bool isConsidered =
      std::find(considered.begin(), considered.end(), schedule.roles) != considered.end();
  if (!isConsidered && !isGemv)
    return "none was faster than imfp where both were measured";
  if (!isGemv || (isConsidered && considered.size() == 1))
    return "";
  if (device.target == razerTarget)
    return placed.integerAccumulator || problem.m > 1
               ? "of products on the CUDA cores nobody has measured others than of floats for m = 1"
               : "";
  if (!isConsidered)
    return "products on the CUDA cores were measured on Hopper and, of floats, on sm_120a alone";
  if (!placed.integerAccumulator)
    return "products of floats were slower on the CUDA cores wherever measured";
  if (schedule.ctasPerSm == 1)
    return "CTAs that have an SM for themselves start one after the other";
  return "";
}

int64_t mostRowsAlike(int64_t m) {
  constexpr int64_t unit = Geometry::batchUnit;
  if (m > leastFittedTile - unit && m <= mostFittedRows)
    return roundUp(m, unit);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(m, 1))));
}

} // namespace rho::compiler
