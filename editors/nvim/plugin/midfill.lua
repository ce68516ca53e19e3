if vim.fn.has('nvim-0.11') == 1 and vim.g.loaded_midfill == nil then
  require('midfill').setup()
end
