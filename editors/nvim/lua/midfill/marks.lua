-- Draws with extmarks only: a fill while it sharpens, a pending fill's weakest tokens, holes that wait. Asks nothing.
local M = {}

local preview = vim.api.nvim_create_namespace('midfill.preview')
local pending = vim.api.nvim_create_namespace('midfill.pending')
local again = vim.api.nvim_create_namespace('midfill.repeats')
local waiting = vim.api.nvim_create_namespace('midfill.holes')
local buffers = {} -- preview token -> buffer
local drawn = {} -- preview token -> extmarks
local ids = {} -- preview token -> fill
local UNLIKELY = 0.5

vim.api.nvim_set_hl(0, 'MidfillSettled', { default = true, link = 'String' })
-- Neovim 0.12 has a group for ghost text.
vim.api.nvim_set_hl(0, 'MidfillGuess', { default = true, link = vim.fn.hlexists('ComplHint') == 1 and 'ComplHint' or 'Comment' })
vim.api.nvim_set_hl(0, 'MidfillFaint', { default = true, link = 'NonText' })
vim.api.nvim_set_hl(0, 'MidfillOld', { default = true, link = 'NonText' })
vim.api.nvim_set_hl(0, 'MidfillRemoved', { default = true, link = 'DiffDelete' })
vim.api.nvim_set_hl(0, 'MidfillAdded', { default = true, link = 'DiffAdd' })
vim.api.nvim_set_hl(0, 'MidfillWeak', { default = true, underdotted = true })
vim.api.nvim_set_hl(0, 'MidfillHint', { default = true, link = 'Comment' })
vim.api.nvim_set_hl(0, 'MidfillHole', { default = true, link = 'Visual' })

--- The buffer's byte column of a position of the server.
function M.column(buffer, place, encoding)
  local line = vim.api.nvim_buf_get_lines(buffer, place.line, place.line + 1, false)[1] or ''
  return vim.str_byteindex(line, encoding, math.min(place.character, vim.str_utfindex(line, encoding)), false)
end

local function encoding_of(buffer)
  local client = vim.lsp.get_clients({ name = 'midfill', bufnr = buffer })[1]
  return client and client.offset_encoding or 'utf-8'
end

--- A hole's text as virtual lines: what is settled, guesses, and unlikely guesses each in a colour of its own.
local function virtual_lines(hole, encoding)
  local text = hole.text
  local lines, line, position = {}, {}, 0
  local function put(stop, group)
    for piece, line_end in text:sub(position + 1, stop):gmatch('([^\n]*)(\n?)') do
      if piece ~= '' then
        table.insert(line, { piece, group })
      end
      if line_end ~= '' then
        table.insert(lines, #line > 0 and line or { { '', group } })
        line = {}
      end
    end
    position = math.max(position, stop)
  end
  local spans = vim.tbl_map(function(span) return { span[1], span[2], 'MidfillSettled' } end, hole.settled)
  for index, span in ipairs(hole.tokens or {}) do
    if hole.confidence[index] < UNLIKELY then
      table.insert(spans, { span[1], span[2], 'MidfillFaint' })
    end
  end
  table.sort(spans, function(one, other) return one[1] < other[1] or one[1] == other[1] and one[2] > other[2] end)
  for _, span in ipairs(spans) do
    put(vim.str_byteindex(text, encoding, span[1], false), 'MidfillGuess')
    put(vim.str_byteindex(text, encoding, span[2], false), span[3])
  end
  put(#text, 'MidfillGuess')
  table.insert(lines, line)
  return lines
end

--- Previews of a token belong to a buffer.
function M.expect(token, buffer)
  buffers[token] = buffer
end

local function erase(token)
  for _, mark in ipairs(drawn[token] or {}) do
    if vim.api.nvim_buf_is_valid(buffers[token]) then
      vim.api.nvim_buf_del_extmark(buffers[token], preview, mark)
    end
  end
  drawn[token] = nil
end

function M.preview(params)
  local buffer = buffers[params.token]
  if not buffer or not vim.api.nvim_buf_is_valid(buffer) then
    return
  end
  local encoding = encoding_of(buffer)
  erase(params.token)
  drawn[params.token], ids[params.token] = {}, params.id
  for _, hole in ipairs(params.holes) do
    local from, to = hole.range.start, hole.range['end']
    local start_column = M.column(buffer, from, encoding)
    local lines = virtual_lines(hole, encoding)
    table.insert(lines[1], 1, { (' '):rep(start_column), 'MidfillGuess' })
    local is_set, mark = pcall(vim.api.nvim_buf_set_extmark, buffer, preview, from.line, start_column, {
      end_row = to.line, end_col = M.column(buffer, to, encoding), hl_group = 'MidfillOld', virt_lines = lines,
    })
    table.insert(drawn[params.token], is_set and mark or nil)
  end
end

--- Whether what is drawn of a token stands on a row.
function M.is_at(token, row)
  for _, mark in ipairs(drawn[token] or {}) do
    local first, _, details = unpack(vim.api.nvim_buf_get_extmark_by_id(buffers[token], preview, mark, { details = true }))
    if first and first <= row and row <= (details.end_row or first) then
      return true
    end
  end
  return false
end

--- The tokens of a buffer's fill: each server counts its own fills.
function M.tokens_of(buffer, id)
  return vim.tbl_filter(function(token) return ids[token] == id and buffers[token] == buffer end, vim.tbl_keys(ids))
end

--- Takes away what is drawn of a token, or of all tokens of a buffer.
function M.clear_preview(buffer, token)
  for other, owner in pairs(buffers) do
    if owner == buffer and (token == nil or other == token) then
      erase(other)
      buffers[other], ids[other] = nil, nil
    end
  end
end

--- The old lines of a hunk above the new ones; `old` counts from where `range` starts.
local function draw_hunk(buffer, range, old, encoding)
  local from, to = range.start, range['end']
  local start, stop = M.column(buffer, from, encoding), M.column(buffer, to, encoding)
  local lines = vim.split(old:gsub('\r', ''), '\n')
  local before = vim.api.nvim_buf_get_text(buffer, from.line, 0, from.line, start, {})[1]
  local virtual = {}
  for index, line in ipairs(lines) do
    local is_edge = line == '' and #lines > 1 and (index == 1 and start > 0 or index == #lines) -- a line end that goes along
    if not is_edge and old ~= '' then
      table.insert(virtual, { { index == 1 and before or '', 'MidfillOld' }, { line, 'MidfillRemoved' } })
    end
  end
  local row = from.line + (old:sub(1, 1) == '\n' and 1 or 0)
  vim.api.nvim_buf_set_extmark(buffer, pending, from.line, start, { end_row = to.line, end_col = stop, hl_group = 'MidfillAdded', strict = false })
  vim.api.nvim_buf_set_extmark(buffer, pending, math.min(row, vim.api.nvim_buf_line_count(buffer) - 1), 0, {
    virt_lines = #virtual > 0 and virtual or nil, virt_lines_above = row < vim.api.nvim_buf_line_count(buffer),
  })
end

--- A text of at most 40 characters: its middle gives way, since names begin and end with what tells them apart.
local function shorten(text)
  local length = vim.fn.strchars(text)
  return length <= 40 and text or vim.fn.strcharpart(text, 0, 22) .. '…' .. vim.fn.strcharpart(text, length - 17)
end

--- Draws all pending fills of a buffer: their weakest tokens, and at each one's first line what can be done with it;
--- with `is_old_shown` what stood there before as well.
function M.pending(buffer, fills, keys, is_old_shown)
  local encoding = encoding_of(buffer)
  vim.api.nvim_buf_clear_namespace(buffer, pending, 0, -1)
  for _, fill in ipairs(fills) do
    for _, hole in ipairs(is_old_shown and fill.holes or {}) do
      for _, hunk in ipairs(hole.hunks) do
        pcall(draw_hunk, buffer, hunk.range, hunk.text, encoding)
      end
    end
    for _, range in ipairs(fill.weak) do
      local from, to = range.start, range['end']
      pcall(vim.api.nvim_buf_set_extmark, buffer, pending, from.line, M.column(buffer, from, encoding), {
        end_row = to.line, end_col = M.column(buffer, to, encoding), hl_group = 'MidfillWeak', strict = false,
      })
    end
    local hint = ('  ◆ %s keep · %s reroll · %s next · %s old · %s discard'):format(keys.accept, keys.reroll, keys.next, keys.old, keys.discard)
    hint = hint .. (fill.passes and ('  ✓ passes `%s`'):format(shorten(fill.passes)) or '')
    hint = hint .. (#vim.tbl_filter(function(hole) return hole.isSuggestion end, fill.holes) > 0 and '  a suggestion' or '')
    for _, origin in ipairs(vim.tbl_map(function(hole) return shorten(hole.origin or '') end, fill.holes)) do
      hint = hint .. (origin ~= '' and not hint:find(origin, 1, true) and '  ' .. origin or '')
    end
    hint = (fill.newErrors > 0 and ('  ▲ %d new syntax error(s)'):format(fill.newErrors) or '') .. hint
    pcall(vim.api.nvim_buf_set_extmark, buffer, pending, fill.holes[1].range.start.line, 0, {
      virt_text = { { hint, 'MidfillHint' } }, virt_text_pos = 'eol',
    })
  end
end

--- Draws where the last change may be made again: the old text as such, the new one behind it, the key at the first line.
function M.repeats(buffer, places, key)
  local encoding = encoding_of(buffer)
  vim.api.nvim_buf_clear_namespace(buffer, again, 0, -1)
  for index, place in ipairs(places) do
    local from, to, text = place.range.start, place.range['end'], vim.split(place.text, '\r?\n')[1]
    pcall(vim.api.nvim_buf_set_extmark, buffer, again, from.line, M.column(buffer, from, encoding), {
      end_row = to.line, end_col = M.column(buffer, to, encoding), hl_group = 'MidfillRemoved', strict = false,
    })
    pcall(vim.api.nvim_buf_set_extmark, buffer, again, to.line, M.column(buffer, to, encoding), {
      virt_text = { { text, 'MidfillGuess' } }, virt_text_pos = 'inline',
    })
    if index == 1 then
      pcall(vim.api.nvim_buf_set_extmark, buffer, again, from.line, 0, {
        virt_text = { { ('  ◆ %s the same change here'):format(key), 'MidfillHint' } }, virt_text_pos = 'eol',
      })
    end
  end
end

--- Marks a hole that waits; `range` is { row, column, row, column } from 0.
function M.hole(buffer, range)
  return vim.api.nvim_buf_set_extmark(buffer, waiting, range[1], range[2], {
    end_row = range[3], end_col = range[4], hl_group = 'MidfillHole', right_gravity = false, end_right_gravity = true,
    virt_text = range[1] == range[3] and range[2] == range[4] and { { '□', 'MidfillHole' } } or nil, virt_text_pos = 'inline',
  })
end

--- Where a waiting hole is now, nil if its buffer was unloaded since; it no longer waits.
function M.take_hole(buffer, mark)
  local row, start, details = unpack(vim.api.nvim_buf_get_extmark_by_id(buffer, waiting, mark, { details = true }))
  vim.api.nvim_buf_del_extmark(buffer, waiting, mark)
  return row and { row, start, details.end_row or row, details.end_col or start }
end

return M
