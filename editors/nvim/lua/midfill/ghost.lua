-- Ghost text: Neovim's own where it has vim.lsp.inline_completion (0.12), else drawn here from the same request.
local M = {}

local namespace = vim.api.nvim_create_namespace('midfill.ghost')
local shown -- { buffer, row, column, end_column, text } of what is on the screen, on 0.11
local sent -- { client, id } of the last request, on 0.11

local function hide()
  if shown then
    vim.api.nvim_buf_clear_namespace(shown.buffer, namespace, 0, -1)
    shown = nil
  end
end

local function show(buffer, row, column, item, encoding)
  hide() -- what an earlier request has drawn
  local line = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1] or ''
  local stop = item.range and vim.str_byteindex(line, encoding, item.range['end'].character, false) or column
  shown = { buffer = buffer, row = row, column = column, end_column = stop, text = item.insertText }
  local lines = vim.split(item.insertText, '\n')
  local rest = vim.tbl_map(function(text) return { { text, 'MidfillGuess' } } end, vim.list_slice(lines, 2))
  vim.api.nvim_buf_set_extmark(buffer, namespace, row, column, {
    virt_text = { { lines[1], 'MidfillGuess' } }, virt_text_pos = 'inline', virt_lines = #rest > 0 and rest or nil,
  })
end

--- Asks for ghost text at the cursor; an answer for another place than the cursor's is dropped.
function M.request()
  hide()
  local buffer = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ name = 'midfill', bufnr = buffer })[1]
  if not client then
    return
  end
  if sent then
    sent.client:cancel_request(sent.id)
  end
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = 2 }
  local _, id = client:request('textDocument/inlineCompletion', params, function(_, result)
    local now = vim.api.nvim_win_get_cursor(0)
    local item = result and (result.items or result)[1]
    if item and vim.fn.mode() == 'i' and now[1] == row and now[2] == column and vim.api.nvim_get_current_buf() == buffer then
      show(buffer, row - 1, column, item, client.offset_encoding)
    end
  end, buffer)
  sent = id and { client = client, id = id }
end

--- Asks again if the cursor is where the server has other ghost text now: both kinds listen to this event.
function M.ask_again(params)
  local buffer, row = vim.api.nvim_get_current_buf(), vim.api.nvim_win_get_cursor(0)[1]
  if vim.fn.mode() == 'i' and row == params.position.line + 1 and vim.uri_from_bufnr(buffer) == params.uri then
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = buffer, modeline = false })
  end
end

--- The first word or line of a text.
local function part_of(text, part)
  if part == 'line' then
    return text:match('^\n*[^\n]*')
  end
  return text:match('^%s*[%w_\128-\255]+') or text:match('^%s*%S') or text
end

--- Types a part of an item of Neovim's own; the server finds the rest again.
local function take_part(item, part)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local from = item.range and select(2, unpack(item.range.start:to_extmark())) or column
  local typed = vim.api.nvim_get_current_line():sub(from + 1, column)
  local text = item.insert_text
  if type(text) ~= 'string' or text:sub(1, #typed) ~= typed then
    return
  end
  local lines = vim.split(part_of(text:sub(#typed + 1), part), '\n')
  vim.api.nvim_buf_set_text(0, row - 1, column, row - 1, column, lines)
  vim.api.nvim_win_set_cursor(0, { row + #lines - 1, #lines == 1 and column + #lines[1] or #lines[#lines] })
end

--- Takes the ghost text, or its first 'word' or 'line'; false where there is none.
function M.accept(part)
  if vim.lsp.inline_completion then
    return vim.lsp.inline_completion.get(part and { on_accept = function(item) take_part(item, part) end })
  end
  if not shown then
    return false
  end
  local text = part and part_of(shown.text, part) or shown.text
  local ghost, lines = shown, vim.split(text, '\n')
  ghost.end_column = text == shown.text and ghost.end_column or ghost.column
  hide()
  vim.schedule(function()
    vim.api.nvim_buf_set_text(ghost.buffer, ghost.row, ghost.column, ghost.row, ghost.end_column, lines)
    local last = #lines == 1 and ghost.column + #lines[1] or #lines[#lines]
    vim.api.nvim_win_set_cursor(0, { ghost.row + #lines, last })
  end)
  return true
end

function M.setup(options)
  local group = vim.api.nvim_create_augroup('midfill.ghost', {})
  if vim.lsp.inline_completion then
    vim.api.nvim_create_autocmd('LspAttach', { group = group, callback = function(event)
      local client = vim.lsp.get_client_by_id(event.data.client_id)
      if client and client.name == 'midfill' then
        vim.lsp.inline_completion.enable(true, { client_id = client.id })
      end
    end })
  else
    vim.api.nvim_create_autocmd({ 'TextChangedI', 'CursorMovedI' }, { group = group, callback = M.request })
    vim.api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave', 'TextChangedP' }, { group = group, callback = hide })
  end
  if options.keys then
    for key, part in pairs({ [options.ghost_accept] = false, [options.ghost_word] = 'word', [options.ghost_line] = 'line' }) do
      vim.keymap.set('i', key, function()
        return M.accept(part or nil) and '' or key
      end, { expr = true, desc = 'Midfill: take the ghost text' .. (part and ', a ' .. part or '') })
    end
  end
end

return M
