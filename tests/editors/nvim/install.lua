-- Runs in a headless Neovim with the plugin and no server: what :Midfill install, uninstall and cancel_install do.
local notices = {}
vim.notify = function(message) table.insert(notices, message) end

local function wait(what, condition)
  if not vim.wait(tonumber(vim.env.TEST_WAIT_MS or 60000), condition, 20) then
    error('waited in vain for ' .. what .. '; notices: ' .. vim.inspect(notices))
  end
end
local function said(pattern)
  return function() return table.concat(notices, '\n'):find(pattern) end
end
local function count(path) return #vim.fn.glob(vim.fn.stdpath('data') .. '/midfill/' .. path, true, true) end
local function client() return vim.lsp.get_clients({ name = 'midfill', bufnr = 0 })[1] end

local scenes = {}
function scenes.missing()
  vim.cmd('Midfill body')
  assert(said('`:Midfill install` installs it')(), vim.inspect(notices))
end
function scenes.cancel()
  vim.cmd('Midfill install')
  wait('its start', said('making an environment %(0%%%)'))
  vim.cmd('Midfill install')
  assert(said('being installed already')(), vim.inspect(notices))
  vim.cmd('Midfill cancel_install')
  wait('the cancel', said('Cancelled; nothing was left behind'))
  wait('its end', function() return count('') == 0 end)
end
function scenes.install()
  vim.cmd('Midfill install')
  wait('the end', said('Midfill is installed'))
  wait('the server', function() return client() and client().initialized end)
end
function scenes.repair()
  local python = vim.fn.resolve(vim.fn.stdpath('data') .. '/midfill/current') .. '/bin/python'
  vim.fn.delete(python)
  client():stop(true)
  wait('the end of the server', function() return not client() end)
  vim.cmd('Midfill body')
  assert(said('`:Midfill install` installs it')(), vim.inspect(notices))
  scenes.install()
  assert(count('env-*') == 1)
end
function scenes.fill()
  vim.api.nvim_win_set_cursor(0, { 6, 4 })
  vim.cmd('Midfill body')
  wait('the fill', function() return vim.b.midfill_pending end)
  print(vim.api.nvim_buf_get_lines(0, 5, 6, false)[1])
end
function scenes.offline()
  vim.cmd('Midfill install')
  wait('the sentence', said('No package index can be reached: connect to the internet, and install again%.'))
  wait('its end', function() return count('') == 0 end)
end
function scenes.uninstall()
  vim.cmd('Midfill uninstall')
  wait('the end', said('Midfill is removed'))
  assert(not client() and count('') == 0)
end

vim.cmd.edit(vim.env.TEST_FOLDER .. '/t.py')
for _, name in ipairs(vim.split(vim.env.SCENES, ' ')) do
  notices = {}
  local ok, problem = xpcall(scenes[name], debug.traceback)
  io.stdout:write(('%s %s\n%s'):format(ok and 'ok' or 'FAILED', name, ok and '' or problem .. '\n'))
  if not ok then
    os.exit(1)
  end
end
io.stdout:flush()
os.exit(0)
