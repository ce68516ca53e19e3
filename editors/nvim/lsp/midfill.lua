-- How Neovim starts Midfill's server and what it tells it. Change any of it with vim.lsp.config('midfill', { ... }).
local capabilities = vim.lsp.protocol.make_client_capabilities()
capabilities.experimental = { midfill = true }

return {
  cmd = { 'midfill', 'lsp' },
  filetypes = {
    'python', 'javascript', 'javascriptreact', 'typescript', 'typescriptreact', 'go', 'rust', 'java', 'c', 'cpp',
  },
  root_markers = { '.git', 'pyproject.toml', 'package.json', 'go.mod', 'Cargo.toml' },
  capabilities = capabilities,
  handlers = {
    ['midfill/preview'] = function(_, params)
      require('midfill.marks').preview(params)
    end,
    ['midfill/didChangeStatus'] = function(_, params)
      require('midfill').status = params
    end,
  },
}
