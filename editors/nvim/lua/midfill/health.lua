-- :checkhealth midfill
local M = {}

function M.check()
  vim.health.start('midfill')
  if vim.fn.has('nvim-0.11') == 0 then
    return vim.health.error('Neovim 0.11 or newer is needed')
  end
  vim.health.ok(vim.lsp.inline_completion and 'ghost text: vim.lsp.inline_completion' or 'ghost text: own extmarks')
  local command = vim.lsp.config.midfill.cmd
  local log = require('midfill.install').log
  if log then
    vim.health.info('the last lines of `:Midfill install`:\n' .. log:sub(-2000))
  end
  if type(command) ~= 'table' or vim.fn.executable(command[1]) == 0 then
    return vim.health.error(('the server %s is not found'):format(vim.inspect(command)), {
      'install or repair it: :Midfill install', "or name it: vim.lsp.config('midfill', { cmd = { '/path/to/midfill', 'lsp' } })",
    })
  end
  vim.health.ok('server command: ' .. table.concat(command, ' '))
  local client = vim.lsp.get_clients({ name = 'midfill' })[1]
  if not client then
    return vim.health.warn('the server does not run; open a file of a language it knows')
  end
  local answer = client:request_sync('midfill/status', vim.empty_dict(), 2000)
  local status = answer and answer.result
  if not status then
    return vim.health.error('the server does not answer; see ' .. vim.lsp.log.get_filename())
  end
  local report = status.kind == 'Error' and vim.health.error or vim.health.ok
  report(('midfill %s: %s'):format(status.version, status.message))
  if status.model then
    local known = status.parameters > 0 and 'engine: %s on %s, %s, %d parameters' or "engine: %s, not one of Midfill's own"
    vim.health.ok(known:format(status.model, status.device, status.dtype, status.parameters))
  else
    vim.health.info('engine: none yet, the first fill starts one')
  end
end

return M
