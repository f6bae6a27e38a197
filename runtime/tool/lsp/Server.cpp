#include "runtime/tool/lsp/Server.h"

#include "dsl/Fmt.h"
#include "dsl/StandardLibrary.h"
#include "runtime/tool/Files.h"
#include "runtime/tool/lsp/Connection.h"
#include "runtime/tool/lsp/Language.h"
#include "runtime/tool/lsp/Message.h"
#include "runtime/tool/lsp/Text.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <variant>

namespace rho::tool::lsp {

namespace {

Json toJson(Position position) {
  return {{"line", position.line}, {"character", position.character}};
}

Json rangeOf(const LineIndex &lines, Span span) {
  return {{"start", toJson(lines.position(span.begin))}, {"end", toJson(lines.position(span.end))}};
}

int kindOf(Completion::Kind kind) {
  switch (kind) {
  case Completion::Kind::Word:
    return 14; // Keyword
  case Completion::Kind::Type:
    return 25; // TypeParameter
  case Completion::Kind::Format:
    return 22; // Struct
  case Completion::Kind::Component:
    return 5; // Field
  case Completion::Kind::Function:
    return 3;
  case Completion::Kind::File:
    return 17;
  }
  return 1;
}

int kindOf(Symbol::Kind kind) {
  switch (kind) {
  case Symbol::Kind::Format:
    return 23; // Struct
  case Symbol::Kind::Gemm:
    return 12; // Function
  case Symbol::Kind::Device:
    return 19; // Object
  case Symbol::Kind::Component:
  case Symbol::Kind::Part:
    return 8; // Field
  }
  return 1;
}

Json toJson(const std::vector<Symbol> &symbols, const LineIndex &lines) {
  Json all = Json::array();
  for (const Symbol &symbol : symbols)
    all.push_back({{"name", symbol.name},
                   {"kind", kindOf(symbol.kind)},
                   {"range", rangeOf(lines, symbol.span)},
                   {"selectionRange", rangeOf(lines, symbol.nameSpan)},
                   {"children", toJson(symbol.children, lines)}});
  return all;
}

struct Document {
  std::string uri;            // as the editor writes it
  std::string name;           // its path, or its URI where it is no file
  std::filesystem::path file; // under the name that links lead to; empty where it is none
  std::string text;
  Json version;
  bool stale = false;    // the editor shows what did not arrive
  bool repaired = false; // the editor shows something else where the text has U+FFFD
  std::unique_ptr<View> view;
  Json published; // diagnostics that the editor has
};

class Server {
public:
  Server(std::FILE *in, std::FILE *out) : connection(in, out) {}

  int run() {
    std::string message;
    while (!exiting && writable) {
      switch (connection.read(message)) {
      case Connection::Outcome::End:
        return 1;
      case Connection::Outcome::BadHeader:
        fail(nullptr, {Code::ParseError, "a message begins with Content-Length: BYTES"});
        return 1;
      case Connection::Outcome::TooLarge:
        lose();
        fail(nullptr, {Code::InvalidRequest,
                       "the message has more than " + std::to_string(maxMessageBytes) + " bytes"});
        break;
      case Connection::Outcome::Message:
        handle(message);
        break;
      }
    }
    return exiting && shuttingDown ? 0 : 1;
  }

private:
  using Handler = Reply (Server::*)(const Json &params);

  // --- messages

  void send(Json message) {
    message["jsonrpc"] = "2.0";
    std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
    writable = connection.write(text) && writable;
  }
  void fail(const Json &id, const Failure &failure) {
    send({{"id", id},
          {"error", {{"code", static_cast<int>(failure.code)}, {"message", failure.message}}}});
  }
  void notify(const char *method, Json params) {
    send({{"method", method}, {"params", std::move(params)}});
  }

  void handle(const std::string &text) {
    std::variant<Message, Failure> parsed = parseMessage(text);
    if (const auto *failure = std::get_if<Failure>(&parsed)) {
      lose();
      return fail(nullptr, *failure);
    }
    const Json &message = std::get<Message>(parsed).json;
    repaired = std::get<Message>(parsed).repaired;
    const Json *id = at(message, {"id"});
    bool validId = id && (id->is_string() || id->is_number_integer());
    std::optional<std::string> method = textAt(message, {"method"});
    if (validId && !method && (message.contains("result") || message.contains("error")))
      return; // an answer: whether files are watched changes nothing here
    if (textAt(message, {"jsonrpc"}) != "2.0" || !method || (id && !validId))
      return fail(validId ? *id : Json(), {Code::InvalidRequest, "the message is no request of "
                                                                 "JSON-RPC 2.0"});
    static const Json none = Json::object();
    const Json *params = at(message, {"params"});
    Reply reply = answer(*method, params ? *params : none, id != nullptr);
    if (!id)
      return;
    if (const auto *failure = std::get_if<Failure>(&reply))
      fail(*id, *failure);
    else
      send({{"id", *id}, {"result", std::move(std::get<Json>(reply))}});
  }

  // What could not be read may have changed any text.
  void lose() {
    for (auto &[uri, document] : documents)
      document.stale = true;
  }

  Reply answer(const std::string &method, const Json &params, bool isRequest) {
    static const std::map<std::string_view, Handler> requests = {
        {"initialize", &Server::initialize},
        {"shutdown", &Server::shutdown},
        {"textDocument/hover", &Server::hover},
        {"textDocument/definition", &Server::definition},
        {"textDocument/completion", &Server::completion},
        {"textDocument/formatting", &Server::formatting},
        {"textDocument/documentSymbol", &Server::symbols},
    };
    static const std::map<std::string_view, Handler> notifications = {
        {"exit", &Server::exit},
        {"initialized", &Server::watchFiles},
        {"workspace/didChangeWatchedFiles", &Server::didChangeFiles},
        {"textDocument/didOpen", &Server::didOpen},
        {"textDocument/didChange", &Server::didChange},
        {"textDocument/didClose", &Server::didClose},
        {"textDocument/didSave", &Server::didChangeFiles},
    };
    if (isRequest && !initialized && method != "initialize")
      return Failure{Code::ServerNotInitialized, "'" + method + "' before 'initialize'"};
    if (isRequest && shuttingDown)
      return Failure{Code::InvalidRequest, "'" + method + "' after 'shutdown'"};
    if (!isRequest && method != "exit" && (!initialized || shuttingDown))
      return Json();
    const auto &handlers = isRequest ? requests : notifications;
    auto handler = handlers.find(method);
    if (handler == handlers.end())
      return Failure{Code::MethodNotFound, "unknown method '" + method + "'"};
    try {
      return (this->*handler->second)(params);
    } catch (const std::exception &exception) { // no memory
      return Failure{Code::InternalError, exception.what()};
    }
  }

  // --- life

  Reply initialize(const Json &params) {
    if (initialized)
      return Failure{Code::InvalidRequest, "a second 'initialize'"};
    initialized = true;
    const Json *dynamic =
        at(params, {"capabilities", "workspace", "didChangeWatchedFiles", "dynamicRegistration"});
    watchable = dynamic && *dynamic == true;
    Json sync = {{"openClose", true}, {"change", 1}, {"save", true}}; // 1: whole texts
    Json triggers = Json::array({":", "=", "(", "[", ",", "\"", "/"});
    return Json{{"capabilities",
                 {{"positionEncoding", "utf-16"},
                  {"textDocumentSync", std::move(sync)},
                  {"hoverProvider", true},
                  {"definitionProvider", true},
                  {"completionProvider", {{"triggerCharacters", std::move(triggers)}}},
                  {"documentSymbolProvider", true},
                  {"documentFormattingProvider", true}}},
                {"serverInfo", {{"name", "rho"}, {"version", RHO_VERSION}}}};
  }
  // Imports are read from files, which others may change.
  Reply watchFiles(const Json &) {
    if (!watchable)
      return Json();
    Json watchers = Json::array({{{"globPattern", "**/*.rho"}}});
    Json registration = {{"id", "files"},
                         {"method", "workspace/didChangeWatchedFiles"},
                         {"registerOptions", {{"watchers", std::move(watchers)}}}};
    send({{"id", "files"},
          {"method", "client/registerCapability"},
          {"params", {{"registrations", Json::array({std::move(registration)})}}}});
    return Json();
  }
  Reply shutdown(const Json &) {
    shuttingDown = true;
    return Json();
  }
  Reply exit(const Json &) {
    exiting = true;
    return Json();
  }

  // --- documents

  Reply didOpen(const Json &params) {
    std::optional<std::string> uri = textAt(params, {"textDocument", "uri"});
    std::optional<std::string> text = textAt(params, {"textDocument", "text"});
    if (!uri || !text)
      return Json();
    documents.erase(*uri);
    show(*uri, std::move(*text), params);
    return Json();
  }

  Reply didChange(const Json &params) {
    std::optional<std::string> uri = textAt(params, {"textDocument", "uri"});
    const Json *changes = at(params, {"contentChanges"});
    if (!uri || !changes || !changes->is_array() || changes->empty())
      return Json();
    std::optional<std::string> text = textAt(changes->back(), {"text"});
    const Json *range = at(changes->back(), {"range"});
    if (text && (!range || range->is_null())) // only whole texts are announced
      show(*uri, std::move(*text), params);
    else if (Document *document = documentOf(params))
      document->stale = true;
    return Json();
  }

  // The whole text of a document, also of one whose opening did not arrive.
  void show(const std::string &uri, std::string text, const Json &params) {
    auto [place, isNew] = documents.try_emplace(uri);
    Document &document = place->second;
    if (isNew) {
      document.uri = uri;
      document.name = pathOfUri(uri).value_or(uri);
      if (document.name != uri)
        document.file = resolved(document.name);
    }
    document.text = std::move(text);
    document.stale = false;
    document.repaired = repaired;
    if (const Json *version = at(params, {"textDocument", "version"}))
      document.version = *version;
    document.published = nullptr;
    checkAll();
  }

  Reply didClose(const Json &params) {
    Document *document = documentOf(params);
    if (!document)
      return Json();
    std::string uri = *textAt(params, {"textDocument", "uri"});
    documents.erase(uri);
    notify("textDocument/publishDiagnostics", {{"uri", uri}, {"diagnostics", Json::array()}});
    checkAll();
    return Json();
  }

  Reply didChangeFiles(const Json &) {
    checkAll();
    return Json();
  }

  Document *documentOf(const Json &params) {
    std::optional<std::string> uri = textAt(params, {"textDocument", "uri"});
    auto found = uri ? documents.find(*uri) : documents.end();
    return found == documents.end() ? nullptr : &found->second;
  }

  // What an import reads: what the editor shows, under whichever name of the file, else the file.
  std::optional<std::string> readFile(const std::string &path) const {
    const auto open = openAs(path);
    return open != documents.end() ? open->second.text : dsl::readSource(path);
  }

  std::map<std::string, Document>::const_iterator openAs(const std::string &path) const {
    const std::filesystem::path file = resolved(path);
    return std::find_if(documents.begin(), documents.end(), [&](const auto &each) {
      return !each.second.file.empty() && each.second.file == file;
    });
  }

  // A text is part of what imports it, so all are checked after each change.
  void checkAll() {
    dsl::FileReader reader = [this](const std::string &path) { return readFile(path); };
    for (auto &[uri, document] : documents) {
      document.view = std::make_unique<View>(document.text, document.name,
                                             document.file.empty() ? dsl::FileReader() : reader);
      Json found = diagnosticsOf(document);
      if (found == document.published)
        continue;
      Json params = {{"uri", uri}, {"diagnostics", found}};
      if (document.version.is_number_integer())
        params["version"] = document.version;
      notify("textDocument/publishDiagnostics", std::move(params));
      document.published = std::move(found);
    }
  }

  Json diagnosticsOf(const Document &document) const {
    LineIndex lines(document.text);
    Json all = Json::array();
    for (const Diagnostic &diagnostic : document.view->diagnostics()) {
      Json one = {{"range", rangeOf(lines, Span{0, 0, 0})},
                  {"severity", 1},
                  {"code", name(diagnostic.id)},
                  {"source", "rho"},
                  {"message", diagnostic.message}};
      Json related = Json::array();
      if (diagnostic.span.file == 0) {
        one["range"] = rangeOf(lines, diagnostic.span);
      } else if (diagnostic.span.file != Span::none) {
        // An error of another file stands where what is wrong is used, or else at the import that
        // leads there.
        const auto use =
            std::find_if(diagnostic.notes.begin(), diagnostic.notes.end(),
                         [](const Diagnostic::Note &note) { return note.span.file == 0; });
        one["range"] = rangeOf(lines, use != diagnostic.notes.end()
                                          ? use->span
                                          : document.view->importOf(diagnostic.span.file));
        const SourceMap &sources = *document.view->sources();
        one["message"] = "in '" + sources.name(diagnostic.span.file) + "': " + diagnostic.message;
        relate(document, {diagnostic.message, diagnostic.span}, related);
      }
      for (const Diagnostic::Note &note : diagnostic.notes)
        relate(document, note, related);
      if (!related.empty())
        one["relatedInformation"] = std::move(related);
      all.push_back(std::move(one));
    }
    return all;
  }

  // Adds a place beside that of a diagnostic.
  void relate(const Document &document, const Diagnostic::Note &note, Json &related) const {
    if (Json location = locationOf(document, note.span); !location.is_null())
      related.push_back({{"location", std::move(location)}, {"message", note.message}});
  }

  // Of a place in the sources of a document; null inside the binary, which no editor opens.
  Json locationOf(const Document &document, Span span) const {
    const SourceMap &sources = *document.view->sources();
    const std::string &path = sources.name(span.file);
    if (path.starts_with(dsl::libraryPrefix))
      return nullptr;
    return {{"uri", span.file == 0 ? document.uri : uriOf(path)},
            {"range", rangeOf(LineIndex(sources.text(span.file)), span)}};
  }

  // --- questions about a place

  struct Place {
    const Document &document;
    LineIndex lines;
    size_t offset;
  };

  // answer(Place), or why there is no such place.
  template <class Answer> Reply atPlace(const Json &params, const Answer &answer) {
    const Document *document = documentOf(params);
    if (!document)
      return noDocument();
    std::optional<size_t> line = countAt(params, {"position", "line"});
    std::optional<size_t> character = countAt(params, {"position", "character"});
    if (!line || !character)
      return Failure{Code::InvalidParams, "position has no line and character"};
    LineIndex lines(document->text);
    size_t offset = lines.offset({*line, *character});
    return answer(Place{*document, std::move(lines), offset});
  }

  static Failure noDocument() {
    return {Code::InvalidParams, "textDocument.uri is no open document"};
  }

  Reply hover(const Json &params) {
    return atPlace(params, [](const Place &place) {
      std::optional<Hover> hover = hoverAt(*place.document.view, place.offset);
      if (!hover)
        return Json();
      return Json{{"contents", {{"kind", "markdown"}, {"value", hover->markdown}}},
                  {"range", rangeOf(place.lines, hover->span)}};
    });
  }

  Reply definition(const Json &params) {
    return atPlace(params, [this](const Place &place) {
      std::optional<Span> span = definitionAt(*place.document.view, place.offset);
      return span ? locationOf(place.document, *span) : Json();
    });
  }

  // As the editor names it, if it is open there.
  std::string uriOf(const std::string &path) const {
    const auto open = openAs(path);
    return open != documents.end() ? open->first : uriOfPath(path);
  }

  Reply completion(const Json &params) {
    return atPlace(params, [](const Place &place) {
      Json items = Json::array();
      for (const Completion &one : completionsAt(*place.document.view, place.offset)) {
        Json item = {{"label", one.label}, {"kind", kindOf(one.kind)}, {"detail", one.detail}};
        if (one.replaced)
          item["textEdit"] = {{"range", rangeOf(place.lines, *one.replaced)},
                              {"newText", one.label}};
        items.push_back(std::move(item));
      }
      return items;
    });
  }

  Reply symbols(const Json &params) {
    const Document *document = documentOf(params);
    return document ? Reply(toJson(symbolsOf(*document->view), LineIndex(document->text)))
                    : noDocument();
  }

  Reply formatting(const Json &params) {
    const Document *document = documentOf(params);
    if (!document)
      return noDocument();
    if (document->stale)
      return Failure{Code::RequestFailed, "the last change of this text did not arrive, as a whole "
                                          "text of at most " +
                                              std::to_string(maxMessageBytes) + " bytes would"};
    if (document->repaired)
      return Failure{Code::RequestFailed, "this text has halves of surrogate pairs or bytes that "
                                          "are no UTF-8, which formatting would replace"};
    Result<std::string> text = dsl::formatText(document->text, document->name);
    if (!text) // for which there are diagnostics
      return Json();
    if (*text == document->text)
      return Json::array();
    Span all{0, 0, static_cast<uint32_t>(document->text.size())};
    Json edit = {{"range", rangeOf(LineIndex(document->text), all)}, {"newText", *text}};
    return Json::array({std::move(edit)});
  }

  Connection connection;
  std::map<std::string, Document> documents; // by URI, as the editor writes it
  bool watchable = false; // the editor tells when files change, if it is asked to
  bool initialized = false, shuttingDown = false, exiting = false;
  bool repaired = false; // the message that is being answered
  bool writable = true;
};

} // namespace

int serve(std::FILE *in, std::FILE *out) { return Server(in, out).run(); }

} // namespace rho::tool::lsp
