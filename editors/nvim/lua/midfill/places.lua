-- Places in a buffer, as { row, byte column, row, byte column } from 0, the end not in it: at the cursor, between marks, and as the server counts.
local marks = require('midfill.marks')

local M = {}
local is_explicit = false -- whether the command that runs was typed with a range that is not `'<,'>`

vim.api.nvim_create_autocmd('CmdlineLeave', { pattern = ':', callback = function()
  is_explicit = not vim.fn.getcmdline():find("^[%s:]*['*]")
  vim.schedule(function() is_explicit = false end)
end })

--- The buffer of a document; nil if it is not loaded. `vim.uri_to_bufnr` would make one that was wiped out again.
function M.loaded_buffer(uri)
  local name = vim.uri_to_fname(uri)
  local buffer = vim.fn.bufexists(name) == 1 and vim.fn.bufadd(name)
  return buffer and vim.api.nvim_buf_is_loaded(buffer) and buffer or nil
end

--- One as the server counts it.
function M.to_server(client, buffer, range)
  local function position(row, column)
    local line = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1] or ''
    local character = vim.str_utfindex(line, client.offset_encoding, math.min(column, #line), false)
    return { line = row, character = character }
  end
  return { start = position(range[1], range[2]), ['end'] = position(range[3], range[4]) }
end

function M.at_cursor()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  return { row - 1, column, row - 1, column }
end

--- One of the server's.
function M.from_server(client, buffer, range)
  local from, to = range.start, range['end']
  return { from.line, marks.column(buffer, from, client.offset_encoding), to.line, marks.column(buffer, to, client.offset_encoding) }
end

--- What stands between two marks; false for a block, whose lines are a hole each.
function M.marked(first, last, kind)
  if kind == 'block' or kind == '\22' then
    return false
  end
  local from, to = vim.api.nvim_buf_get_mark(0, first), vim.api.nvim_buf_get_mark(0, last)
  local line = vim.api.nvim_buf_get_lines(0, to[1] - 1, to[1], false)[1] or ''
  if kind == 'line' or kind == 'V' then
    return { from[1] - 1, 0, to[1] - 1, #line }
  end
  local column = math.min(to[2], math.max(#line - 1, 0))
  local is_behind = #line == 0 or last == '>' and vim.o.selection == 'exclusive' -- of the last character
  return { from[1] - 1, from[2], to[1] - 1, is_behind and math.min(to[2], #line) or column + vim.str_utf_end(line, column + 1) + 1 }
end

--- What a command's range covers: the visual selection where it is that one's lines and may be meant, else all of its lines.
function M.selected(command)
  if command.range == 0 then
    return nil
  end
  local from, to = vim.api.nvim_buf_get_mark(0, '<'), vim.api.nvim_buf_get_mark(0, '>')
  if not is_explicit and command.range == 2 and command.line1 == from[1] and command.line2 == to[1] then
    return M.marked('<', '>', vim.fn.visualmode())
  end
  return { command.line1 - 1, 0, command.line2 - 1, #vim.fn.getline(command.line2) }
end

return M
