#!/usr/bin/env bash
# Puts a VS Code that a browser can show (code-server) and its driver into FOLDER. Needs node 20, chromium and ripgrep.
# The plain installation would fetch ripgrep and argon2 from GitHub; here one is linked and the other built.
# Headers come from the installed node where it has them: node-gyp would fetch them from nodejs.org.
set -euo pipefail
folder=$1
export npm_config_yes=true npm_config_fund=false npm_config_audit=false
prefix=$(node -p 'require("path").resolve(process.execPath, "../..")')
if [ -z "${npm_config_nodedir:-}" ] && [ -f "$prefix/include/node/node.h" ]; then export npm_config_nodedir="$prefix"; fi
mkdir -p "$folder" && cd "$folder"
[ -f package.json ] || npm init -y >/dev/null
npm install --ignore-scripts code-server@4.100.3 playwright-core
cd node_modules/code-server/lib/vscode
npm install --ignore-scripts --omit=dev
npm rebuild node-pty @vscode/spdlog native-watchdog @vscode/deviceid @parcel/watcher
mkdir -p node_modules/@vscode/ripgrep/bin && ln -sf "$(command -v rg)" node_modules/@vscode/ripgrep/bin/rg
(cd extensions && npm install --ignore-scripts --omit=dev)
ln -sfn node_modules node_modules.asar
cd "$folder/node_modules/argon2" && npm_config_build_from_source=true npm run install
touch "$folder/installed"
