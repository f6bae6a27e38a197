// Starts `rho lsp` for .rho files in VS Code.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = vscode.workspace.getConfiguration("rho").get("path");
  client = new LanguageClient(
    "rho",
    "Rho",
    { command, args: ["lsp"] },
    // Not of other schemes, such as git:, whose imports are no files.
    {
      documentSelector: [
        { scheme: "file", language: "rho" },
        { scheme: "untitled", language: "rho" },
      ],
    },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
