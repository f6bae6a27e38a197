// Builds the program of one thread block from a placed gemm. What is multiplied, scaled and decoded
// follows the operations of rho.gemm; how it is divided among CTAs, warps and k tiles follows the
// plan.
#pragma once

#include "compiler/passes/GemmContext.h"
#include "dsl/Division.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <map>
#include <memory>
#include <optional>

namespace rho::compiler {

// The chain of operations from rho.return back to the matrix instruction.
struct Chain {
  double factor = 1; // of the result
  ir::MmaOp mma;
  ir::DecodeOp decode;
  std::vector<ir::ComponentOp> accumulator; // group scales, in order of application
  std::vector<ir::ComponentOp> epilogue;
  std::shared_ptr<Chain> residual; // whose result is added
  // Of a partition: a chain for each part, whose epilogue is the part's alone. The whole has then
  // neither `mma` nor `decode`.
  std::vector<Chain> parts;
};

class KernelBuilder {
public:
  KernelBuilder(ir::GemmOp op, const GemmContext &whole, Chain chain);
  void build();

private:
  using Value = mlir::Value;
  using Pair = std::pair<bool, int>; // weight or activation, component
  ir::GemmOp op;
  const GemmContext &whole;
  GemmContext context; // of the part that is being built
  Chain wholeChain, chain;
  const Geometry &g;
  WeightLayout layout;
  mlir::OpBuilder builder;
  Value weight, output, workspace, m, tileN, tileM;
  Value trimmed;                   // batch rows of a tile that are copied; null: all
  Value firstK, lastK;             // this CTA's k tiles of the output tile, last exclusive
  Value shares, share, firstPlace; // of the output tile, as tile.for_tiles has them
  std::optional<OutputSlices> slices;
  Value slicesBuffer;
  Value tokensBuffer; // tokenBytes; null: none
  // Tables of DecodeProgram::lanes, where they begin, and 4 * lane, of several in all four bytes;
  // null: none.
  Value pairTables, pairsBegin, pairs;
  Value partTiles;                 // the table of which part has which k tiles
  std::map<int, Value> activation; // by place in storedComponents()
  std::map<Pair, Value> buffers; // shared, by section or by that place; elements of all parts at 0
  Value operandBuffer;           // of decoded operands, where a warpgroup decodes apart
  Value operandSlot;             // of the k tile that is multiplied
  Value sumsBuffer;              // shared, of groups of warps along k

  // LowerToTile.cpp: the frame.
  void addParameters(mlir::Block &block);
  void allocateShared();
  void fillPairTables();
  // What the pipeline carries from k tile to k tile: sums, and operand A of the batches that run
  // on, of the weight and of its residual.
  struct Carried {
    std::vector<Value> sums, residualSums, held, residualHeld;
    std::vector<Value> flatten() const;
    // Values in the order of flatten(), as many of each as this has.
    Carried split(mlir::ValueRange values) const;
    // What products return: sums, as many as there are, and behind them what is held.
    static void assign(std::vector<Value> &sums, std::vector<Value> &held,
                       llvm::ArrayRef<Value> products) {
      held = products.drop_front(sums.size()).vec();
      sums = products.take_front(sums.size()).vec();
    }
  };
  Carried startOf(const std::vector<Value> &sums);
  // This CTA's k tiles, and the pipeline over them. Returns the accumulators, row tile by row
  // tile, batch tiles innermost.
  std::vector<Value> buildPipeline(const std::vector<Value> &sums = {}); // those to go on from
  // Goes on at the end of a block; returns new arguments of it.
  std::vector<Value> enterBlock(mlir::Block &block, size_t indices);
  void buildProduce(mlir::Block &block);
  void buildDecode(mlir::Block &block);
  void buildConsume(mlir::Block &block, const Carried &start);
  void findTile();
  void buildCopies(Value tileK, Value slot);
  void buildActivationCopy(int component, Value tileK, Value slot);
  const LayoutSection &section(int index) const {
    return layout.sections[sectionIndex(context.gemm.weight, index)];
  }
  int64_t storedBitsOf(int component) const {
    const dsl::Format &weight = context.gemm.weight;
    return dsl::unitBits(weight.components[dsl::hostOf(weight, component)].type);
  }
  // What is loaded of it for a row at a time, the codes of one or more groups.
  int64_t groupsTogether(int component) const {
    return g.groupsTogether(storedBitsOf(component),
                            extentK(context.gemm.weight.components[component]));
  }
  int64_t unitBits(int component) const {
    return storedBitsOf(component) * groupsTogether(component);
  }
  // Where a group's code begins in it.
  int64_t bitInUnit(int component, int64_t group) const {
    return group % groupsTogether(component) * storedBitsOf(component) +
           context.gemm.weight.components[component].shift;
  }
  // Where the bit lies in it that negates a scale; null: none does.
  mlir::IntegerAttr signInUnit(int scale, int64_t group) {
    const ScaleSign sign = context.placed.decode.scaleSign;
    if (sign.selector == 0 || context.gemm.weight.components[sign.selector].host != scale)
      return {};
    return builder.getI64IntegerAttr(bitInUnit(sign.selector, group) + sign.bit);
  }
  // Words that hold such a unit for each of this thread's weight rows.
  int64_t wordsOfRows(int64_t bits) const {
    return std::max<int64_t>(1, g.rowsPerThread() * bits / 32);
  }
  bool sharesUnit(int component) const {
    const dsl::Format &weight = context.gemm.weight;
    return weight.components[component].host >= 0 || !dsl::guestsOf(weight, component).empty();
  }
  // The first tile of a section of the weight that k tile `tileK` has of a panel of this CTA's.
  Value sectionTile(int index, Value tileK, int64_t panel = 0);

  // A chunk's words of this thread, plane by plane of the codes.
  using Chunk = std::vector<Value>;
  struct ParameterKey {
    DecodeParam::Form form;
    int component;
    int64_t group;
    int64_t row;
    friend auto operator<=>(const ParameterKey &, const ParameterKey &) = default;
  };
  // What has been loaded and decoded of the k tile that is being built. Units and groups count
  // within it.
  struct TileValues {
    std::map<int64_t, std::vector<Chunk>> codes;         // by chunk and row tile
    std::map<std::pair<int, int64_t>, Value> rowVectors; // by component and unit
    // By component, unit and warpgroup.
    std::map<std::tuple<int, int64_t, int64_t>, std::vector<Value>> rowWords;
    std::map<ParameterKey, Value> parameters; // of the decode: registers of a weight row
    // Numbers, by their text, components, group and row, and their components, by all but the text.
    std::map<std::tuple<std::string, std::vector<int>, int64_t, int64_t>, Value> numbers;
    std::map<std::tuple<int, int64_t, int64_t, bool>, Value> componentNumbers;
    std::map<std::pair<const void *, DecodeParam::Form>, Value> products; // by their number
    // The few numbers that a selector chooses from: tables, by their form, the number's text and
    // components, and the row.
    std::map<std::tuple<std::string, std::string, std::vector<int>, int64_t>, std::vector<Value>>
        choices;
    // Scales of blocks and selectors in their spare bits, by operand, word and tile.
    std::map<std::tuple<bool, int64_t, int64_t>, Value> scaleWords;
    std::map<std::tuple<bool, int64_t, int64_t>, std::vector<Value>> selectorWords;
  } tileValues;

  // TileParts.cpp: activations stored in several formats.
  void enterPart(size_t part);
  std::vector<Value> buildParts();
  void waitForLists();
  // Equal shares of the work of all outputs: which k tiles they have follows from the lists.
  bool balancesStream() const { return g.streamK && !context.plan.schedule.tileCosts.empty(); }
  Value tableEntry(Value index);
  std::vector<Value> startsOfParts();
  std::vector<Value> tilesOfParts(const std::vector<Value> &starts);
  Value startOfShare(const std::vector<Value> &starts, Value number);
  std::vector<std::pair<Value, Value>> rangesOfParts();
  // Sums times what belongs to the part alone, plus those of other parts.
  std::vector<Value> finishPart(const std::vector<Value> &own, const std::vector<Value> &others);
  // Of warps with roles: what is done to sums from here on is done once a tile.
  std::vector<Value> totalOf(const std::vector<Value> &sums);
  std::vector<Value> scaledBy(const std::vector<Value> &sums, double factor);
  Value &bufferOf(bool ofWeight, int component) {
    bool shared = ofWeight || component == 0;
    return buffers[{ofWeight, shared ? component : context.firstStored + component}];
  }
  Value activationOf(int component) { return activation[context.firstStored + component]; }

  // TileOperands.cpp: codes and their parameters to operand A.
  Value rowVectorOf(int component, int64_t group, int64_t warpgroup, Value slot);
  void loadRowVector(int component, int64_t k, Value slot); // into TileValues::rowVectors
  const std::vector<Value> &rowWordsOf(int component, int64_t group, int64_t warpgroup, Value slot);
  // Rows count on through the warpgroups whose operand this thread decodes.
  Value parameter(DecodeParam::Form form, int component, int64_t group, int64_t row, Value slot);
  // A row's code of a component: where it begins in a packed word.
  struct PackedCode {
    Value word;
    int64_t bit;
  };
  PackedCode packedCode(int component, int64_t group, int64_t row, Value slot);
  // Appends what makes that of it that begins at `bit`.
  static DecodeProgram::Operand codeAt(DecodeProgram &program, int64_t bit, int bits);
  // Of a word, which table each of its first `count` codes of a selector names.
  DecodeProgram tablePlacesOf(int selector, int count) const;
  // TileNumbers.cpp
  Value number(ir::NumberOp op, int64_t k, int64_t row, Value slot);
  // What the code stands for that tables of pairs have different lanes for, by table; none of one.
  std::vector<Value> pairNumbers();
  int selectorOf(ir::NumberOp op) const; // the component that chooses from few, or 0
  Value pairsOf(ir::NumberOp op, int64_t k, int64_t row, Value slot); // the parameter
  Value choices(ir::NumberOp op, int64_t k, int64_t row, Value slot);
  Value products(Value number, DecodeParam::Form form); // of forms LowProducts and HighProducts
  // Of numbers, what is not streamed, by component: loaded before the k tiles.
  std::map<int, Value> tensorNumbers;
  void loadTensorNumbers();
  // A component of a number, by component, group and row.
  // `fraction`: 1 + u / 128 in place of u, of one that hasFraction().
  Value componentNumber(int component, int64_t group, int64_t row, Value slot,
                        bool fraction = false);
  // Whether its codes are unsigned integers of at most 7 bits, each in a byte.
  bool hasFraction(int component, int64_t group) const;
  // `number` names components by their places in `components`, counted from 1.
  Value sumOf(const RowNumber &number, const std::vector<int> &components, int64_t k, int64_t row,
              Value slot); // in f32
  Value rounded(Value number);
  // The four that a selector, a component, chooses from.
  std::vector<Value> chosenNumbers(const RowNumber &number, const std::vector<int> &components,
                                   int selector, int64_t k, int64_t row, Value slot);
  // Null where it is none of few that a selector chooses from.
  Value chosenNumber(const RowNumber &number, const std::vector<int> &components, int64_t k,
                     int64_t row, Value slot);
  // Components of the weight that a parameter of the decode is made from.
  std::vector<int> componentsOf(Value parameter) const;
  // The parameters of the decode for k of a row tile. `firstRow`: which of a row tile's two rows
  // the decode's first register is of.
  std::vector<Value> decodeParameters(int64_t k, int64_t rowTile, Value slot, int64_t firstRow);
  int64_t groupIn(int64_t k, int64_t group) const {
    return g.parameterK(group) >= g.tileK ? 0 : k / g.parameterK(group);
  }
  Chunk loadChunk(int64_t chunk, int64_t rowTile, Value slot);
  const std::vector<Chunk> &codesOf(int64_t chunk, Value slot);
  // The four registers of operand A for one instruction.
  std::vector<Value> decodeStep(const Chunk &words, int64_t step, int64_t k, int64_t rowTile,
                                Value slot);
  std::vector<Value> wordsOfUnit(const Chunk &words, int64_t unit);
  // The same where units are of one row half: PlacedGemm::oneRowHalf.
  std::vector<Value> decodeRowHalves(const Chunk &words, int64_t step);
  struct UnitKey {
    void *words;
    int64_t unit;
    friend auto operator<=>(const UnitKey &, const UnitKey &) = default;
  };
  std::map<UnitKey, std::vector<Value>> decodedUnits;
  // Programs of a unit, each for the registers of one instruction or for all where those are fewer.
  std::vector<DecodeProgram> unitPrograms;
  // One k tile of codes to operand A in shared memory.
  void buildOperandStores(Value slot, Value to);

  // TileProducts.cpp: one k tile to sums.
  Value blockScalesOf(bool ofWeight, int64_t word, int64_t tile, Value slot);
  // Of an operand with a remapped code: tables of the codes that replace it, and registers of codes
  // as those of the operands whose sum they are.
  std::map<bool, std::vector<Value>> splitTables; // by operand
  // TileSplits.cpp
  void buildSplitTables();
  // A word's codes through a program with one output.
  Value runProgram(mlir::Location loc, const DecodeProgram &program, Value word);
  // Codes of four blocks without what lies in their spare bits.
  Value withoutGuests(bool ofWeight, int component, Value word);
  const std::vector<Value> &selectorsOf(bool ofWeight, int64_t word, int64_t tile, Value slot);
  std::vector<std::vector<Value>> splitRegisters(bool ofWeight, const std::vector<Value> &registers,
                                                 int64_t k, int64_t tile, Value slot);
  std::vector<Value> splitActivation(Value b, int64_t chunk, int64_t batchTile, Value slot);
  Value multiply(const std::vector<Value> &a, Value b, int64_t step, Value sum, int64_t k,
                 int64_t rowTile, int64_t batchTile, Value slot);
  // Sums of each fragment that go on from k tile to k tile, to be added at the end.
  size_t carriedChains() const;
  std::vector<Value> buildWarpProducts(Value slot, std::vector<Value> sums);
  std::vector<Value> decodeBatch(int64_t first, int64_t extent, Value slot);
  // `sums` empty: starts at zero.
  std::vector<Value> startBatch(int64_t first, int64_t extent, const std::vector<Value> &a,
                                Value slot, const std::vector<Value> &sums);
  int64_t batchExtent() const; // along k
  void loadBatch(int64_t first, Value slot);
  std::vector<Value> buildGroupedProducts(Value slot, std::vector<Value> sums);
  std::vector<Value> buildWarpgroupProducts(Value slot, std::vector<Value> carried);
  std::vector<Value> buildProducts(Value slot, const std::vector<Value> &carried);
  // `held`: registers of operand A, until here.
  std::vector<Value> awaitBatch(const std::vector<Value> &sums,
                                const std::vector<Value> &held = {});
  int64_t flushK() const;
  bool grouped() const { return !chain.accumulator.empty(); }
  // Registers of operand A from k tile to k tile.
  bool carries() const {
    return g.specialized() && !grouped() && !g.decodesApart() && carriesBatch(g);
  }
  bool biased() const { return context.plan.schedule.sums == dsl::ScheduleDecl::Sums::Biased; }
  bool rowScalesTimesBiasAreExact() const;
  std::vector<Value> joinChains(const std::vector<std::vector<Value>> &partial);
  // Scales of the group of k, of the weight's rows and of the batch's; none where sums take none.
  std::vector<Value> rowScales(int64_t k, Value slot);
  std::vector<Value> columnScales(int64_t k, Value slot);
  void flushGroup(std::vector<Value> &sums, const std::vector<Value> &partial, int64_t k,
                  Value slot);

  // TileResidual.cpp: the stored blocks of a residual, by a builder of its own whose k tile is one
  // piece of them.
  std::unique_ptr<KernelBuilder> residual;
  Value pieceInTile;       // of such a builder: which piece of the k tile of the kernel
  int64_t kernelTileK = 0; // and that
  // Of such a builder: groups of k from the first of the kernel's k tile to that of the piece; null
  // where a group is no shorter than the k tile, or no piece is built.
  Value groupsBeforePiece(int64_t group);
  Value stepsBeforePiece(); // the same of steps of k; null: no piece is built
  void makeResidual();
  void buildPieceCopies(Value tileK, Value slot);
  // What this thread loads of a piece.
  struct PieceLoad {
    int component;                  // 0: a plane of the codes
    int64_t place;                  // the row tile of the codes, else which unit
    int64_t words, offset;          // the latter from the piece's first byte
    std::optional<int64_t> rowBits; // of a code for each row; none: words of each lane
  };
  std::vector<PieceLoad> pieceLoads();
  // In the ring of pieces, which all slots share, `piece` counts its places: each is a slot.
  void takePlace(Value &slot, Value &piece);
  std::vector<Value> loadPiece(Value slot, Value piece);
  // This warp's in the k tile: a bit for each, and where the first is.
  Value storedPieces, firstPiece;
  Value loadBandWord(Value tileK);
  void takeBandWord(Value word);
  void findPieces(Value tileK);
  struct StoredPiece {
    Value stored, piece; // whether it is, and its number
  };
  StoredPiece pieceOfChunk(int64_t chunk);
  // Of a residual that shares the weight's scales: the words of a chunk's sparse plane, which are
  // zeros where no piece of the k tile is stored.
  bool someAreStored = true;
  Value loadSparseWords(int64_t chunk, int64_t rowTile, Value slot);
  int64_t sparseOffset(int64_t rowTile);           // of a row tile's, from a piece's first byte
  std::vector<Value> streamPieces(Value bandWord); // the same of a k tile, from global memory
  std::vector<Value> buildEitherProducts(Value slot, const std::vector<Value> &carried);
  // Returns sums, behind them operand A of the products that run on: heldOfPieces() registers.
  std::vector<Value> addResidual(Value slot, std::vector<Value> sums);
  int64_t heldOfPieces() const;
  std::vector<Value> joinSums(std::vector<Value> sums);
  std::vector<ir::ComponentOp> scalesOfBoth; // in the epilogue of the weight and of the residual
  std::vector<Value> buildPieceProducts(Value slot, Value inTile, const std::vector<Value> &words,
                                        std::vector<Value> sums);

  // TileGemv.cpp
  class GemvLoop;
  void buildGemv();
  std::vector<Value> streamTile(Value tileK);
  void takeTile(const std::vector<Value> &words);
  std::vector<Value> buildDotProducts(Value tileK, std::vector<Value> sums);

  // TileEpilogue.cpp
  // What is constant along k: for all outputs, for weight rows, for pairs of batch rows; null or
  // empty where there is none.
  struct EpilogueFactors {
    Value all;
    std::vector<Value> rows, columns;
  };
  // `with`, or the product of both.
  void multiplyInto(mlir::Location loc, Value &product, Value with);
  EpilogueFactors buildFactors();
  // Their loads, words of rows and numbers of all else, are those of buildFactors() unless they
  // were asked for before.
  std::map<mlir::Operation *, std::vector<Value>> factorLoads; // by component
  void loadFactors(bool ofWeight);
  const std::vector<Value> &loadFactor(ir::ComponentOp component);
  // Accumulator i of a thread times what belongs to it, plus another.
  Value scaled(const EpilogueFactors &by, size_t i, Value value, Value plus = {});
  void buildEpilogue(std::vector<Value> sums);

  // Small builders.
  mlir::Location at(llvm::StringRef origin) {
    return locationOf(op.getContext(), context.origins, origin);
  }
  mlir::Location atResidual() { return at("weight." + context.gemm.weight.residual->part.name); }
  mlir::Location at(bool ofWeight, int component) {
    return componentLocation(op.getContext(), context, ofWeight, component);
  }
  static bool isOfWeight(ir::ComponentOp component) { return component.getRole() != "activation"; }
  // What an operation names: a component of which operand, and its index there.
  struct Source {
    bool ofWeight;
    int index;
    const dsl::Component &component;
  };
  Source sourceOf(ir::ComponentOp named) const {
    bool ofWeight = isOfWeight(named);
    const dsl::Format &format = ofWeight ? context.gemm.weight : context.gemm.activation;
    llvm::StringRef name = named.getComponent();
    if (!ofWeight)
      name.consume_front(context.prefix);
    int index = 0;
    while (format.components[index].name != name)
      ++index;
    return {ofWeight, index, format.components[index]};
  }
  Value i32(int64_t value) {
    return mlir::arith::ConstantIntOp::create(builder, at("schedule"), builder.getI32Type(), value);
  }
  Value mul(Value a, int64_t b) {
    return b == 1 ? a : mlir::arith::MulIOp::create(builder, at("schedule"), a, i32(b)).getResult();
  }
  Value add(Value a, Value b) { return mlir::arith::AddIOp::create(builder, at("schedule"), a, b); }
  Value divide(Value a, int64_t b) {
    return b == 1 ? a
                  : mlir::arith::DivUIOp::create(builder, at("schedule"), a, i32(b)).getResult();
  }
  // Output tiles along n, and along m.
  int64_t outputTilesN() const { return divideUp(context.plan.problem.n, g.tileN); }
  Value outputTilesM() { return divide(add(m, i32(g.tileM - 1)), g.tileM); }
  mlir::VectorType vectorOf(int64_t count, bool integer) {
    mlir::Type element = integer ? mlir::Type(builder.getI32Type()) : builder.getF32Type();
    return mlir::VectorType::get({count}, element);
  }
  mlir::VectorType accumulatorType(bool integer) { return vectorOf(4, integer); }
  // Of the sums that are carried from k tile to k tile.
  mlir::VectorType sumType() {
    return accumulatorType(context.placed.integerAccumulator && !grouped());
  }
};

} // namespace rho::compiler
