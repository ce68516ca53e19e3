-- How Neovim starts Midfill's server and what it tells it. Change any of it with vim.lsp.config('midfill', { ... }).
local capabilities = vim.lsp.protocol.make_client_capabilities()
capabilities.experimental = { midfill = true }

--- Neovim's own handler takes any edit for version 0, and says of a stale one that it did not take that it did.
local function apply_edit(error, params, context)
  for _, change in ipairs(params.edit.documentChanges or {}) do
    local buffer = require('midfill.places').loaded_buffer(change.textDocument.uri)
    local is_stale = vim.lsp.util.buf_versions[buffer] ~= change.textDocument.version
    if is_stale or not vim.lsp.buf_is_attached(buffer, context.client_id) then
      return { applied = false, failureReason = not buffer and 'this buffer has no name; save it first' or nil }
    end
  end
  return vim.lsp.handlers['workspace/applyEdit'](error, params, context)
end

--- The command on the path, else what `:Midfill install` has installed.
local function find_command()
  local is_plugin, install = pcall(require, 'midfill.install')
  return vim.fn.executable('midfill') == 0 and is_plugin and install.command() or { 'midfill', 'lsp' }
end

return {
  cmd = find_command(),
  filetypes = {
    'python', 'javascript', 'javascriptreact', 'typescript', 'typescriptreact', 'go', 'rust', 'java', 'c', 'cpp', 'vue', 'svelte',
  },
  root_markers = { '.git', 'pyproject.toml', 'package.json', 'go.mod', 'Cargo.toml' },
  capabilities = capabilities,
  flags = { debounce_text_changes = 0 }, -- a change that waits is one that the server's edit does not know
  on_exit = function(code, signal)
    vim.schedule(function() require('midfill').recover(code, signal) end)
  end,
  handlers = {
    ['workspace/applyEdit'] = apply_edit,
    ['midfill/preview'] = function(_, params)
      require('midfill.marks').preview(params)
    end,
    ['midfill/didChangePending'] = function(_, params)
      require('midfill').show_pending(params)
    end,
    ['midfill/didChangeRepeats'] = function(_, params)
      require('midfill').show_repeats(params)
    end,
    ['midfill/didJudge'] = function(_, params)
      require('midfill.ghost').ask_again(params)
    end,
    ['midfill/didChangeStatus'] = function(_, params)
      require('midfill').status = params
    end,
  },
}
