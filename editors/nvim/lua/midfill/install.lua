-- Installs the server into Neovim's data folder and removes it; editors/install.py does the work.
local M = {}
local running -- the process that installs or removes

local function say(message, level)
  vim.notify(vim.startswith(message, 'Midfill') and message or 'Midfill: ' .. message, level or vim.log.levels.INFO)
end

local function folder()
  return vim.fs.joinpath(vim.fn.stdpath('data'), 'midfill')
end

--- The installer and what it installs: the wheel beside it in `server`, else the checkout that the plugin lies in.
local function parts()
  local plugin = vim.fn.resolve(vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h:h:h'))
  local packed = vim.fs.joinpath(plugin, 'server')
  local wheel = vim.fn.glob(packed .. '/midfill-*.whl', true, true)[1]
  local editors = vim.fs.dirname(plugin)
  return wheel and packed or editors, wheel or vim.fs.dirname(editors)
end

--- The command of the server that is installed, broken or not; nil where there is none.
function M.command()
  local python = vim.fs.joinpath(vim.fn.resolve(vim.fs.joinpath(folder(), 'current')), 'bin', 'python')
  return vim.uv.fs_lstat(vim.fs.joinpath(folder(), 'current')) and { python, '-P', '-m', 'midfill_lsp' } or nil
end

--- The sentence for a system without Python.
local function no_python(installer)
  local ways = vim.json.decode(table.concat(vim.fn.readfile(vim.fs.joinpath(installer, 'install.json'))))
  if vim.fn.has('mac') == 1 then
    return ways.darwin
  end
  for name, way in pairs(ways) do
    if vim.fn.executable(name) == 1 then
      return way
    end
  end
  return ways.other
end

--- Calls `hear` with each of the installer's messages. Tries the next way to start it where one says nothing.
local function start(ways, words, hear, fail)
  local way = table.remove(ways, 1)
  if not way then
    return fail()
  end
  if vim.fn.executable(way[1]) == 0 then
    return start(ways, words, hear, fail)
  end
  local rest, has_spoken, log = '', false, {}
  local function read(_, data)
    local lines = vim.split(rest .. (data or ''), '\n')
    rest = table.remove(lines)
    for _, line in ipairs(lines) do
      local is_read, message = pcall(vim.json.decode, line)
      if is_read then
        has_spoken = true
        vim.schedule(function()
          running = message.kind == 'progress' and running or nil
          hear(message, log)
        end)
      end
    end
  end
  local options = { stdin = true, stdout = read, stderr = function(_, data) table.insert(log, data) end }
  local process
  process = vim.system(vim.list_extend(way, words), options, vim.schedule_wrap(function()
    local is_cut = running == process -- nothing but progress was said
    running = not is_cut and running or nil
    if not has_spoken then
      start(ways, words, hear, fail)
    elseif is_cut then
      hear({ kind = 'failed', message = 'the installer was ended in the middle; run the command again' }, log)
    end
  end))
  running = process
end

--- Ends the servers, then calls `next`.
local function stop(next)
  local clients = vim.lsp.get_clients({ name = 'midfill' })
  if #clients == 0 then
    return next()
  end
  vim.tbl_map(function(client) client:stop() end, clients)
  vim.defer_fn(function() stop(next) end, 100)
end

--- Starts the server for what is open; a working command of the user's own stays.
local function attach()
  local command = vim.lsp.config.midfill.cmd
  if type(command) == 'table' and (vim.fn.executable(command[1]) == 0 or vim.startswith(command[1], folder())) then
    vim.lsp.config('midfill', { cmd = M.command() })
  end
  stop(require('midfill').start)
end

local function run(action, words, finish)
  if running then
    return say('it is being installed already; `:Midfill cancel_install` ends that', vim.log.levels.WARN)
  end
  if vim.fn.has('win32') == 1 then
    return say('it runs on Linux and macOS: on Windows, run Neovim in WSL', vim.log.levels.ERROR)
  end
  local installer, source = parts()
  local shown = ''
  local command = vim.list_extend({ vim.fs.joinpath(installer, 'install.py'), action, folder(), '--cancel-on-eof' }, words(source))
  local ways = { { 'python3' }, { 'python' }, { 'uv', 'run', '--no-project', '--python', '>=3.11,<3.15' } }
  start(ways, command, function(message, log)
    if message.kind ~= 'progress' then
      M.log = table.concat(log)
      say(message.message, (message.kind == 'done' or message.reason == 'cancelled') and vim.log.levels.INFO or vim.log.levels.ERROR)
      return message.kind == 'done' and finish()
    end
    local doing = ('%s (%d%%)'):format(message.message:gsub(':.*', ''), math.floor(message.percent / 10) * 10)
    if doing ~= shown then -- one for each step and each tenth
      shown = doing
      say(doing)
    end
  end, function() say(no_python(installer), vim.log.levels.ERROR) end)
end

--- Installs the server, updates it or repairs it, and starts it.
function M.install()
  run('install', function(source)
    local index = (vim.g.midfill or {}).torch_index
    return vim.list_extend({ '--source', source }, index and { '--torch-index', index } or {})
  end, attach)
end

--- Removes what `install` made.
function M.uninstall()
  stop(function() run('remove', function() return {} end, function() end) end)
end

--- Stops an installation; nothing of it stays.
function M.cancel()
  if not running then
    return say('nothing is being installed', vim.log.levels.WARN)
  end
  running:write(nil) -- the end of its stdin
end

return M
