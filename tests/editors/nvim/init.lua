-- A Neovim with nothing in it but the plugin, whose server is the one that TEST_SERVER names.
vim.o.swapfile = false
vim.o.shadafile = 'NONE'
vim.opt.runtimepath:prepend(vim.env.TEST_PLUGIN)
vim.lsp.config('midfill', { cmd = vim.json.decode(vim.env.TEST_SERVER) })
vim.cmd('runtime plugin/midfill.lua')
