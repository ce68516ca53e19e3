-- Commands and keys of Midfill. The server makes the fills and puts them in; marks.lua draws, ghost.lua suggests.
local marks = require('midfill.marks')

local M = { status = nil }
local holes = {} -- buffer -> extmarks of holes that wait to be filled jointly
local last_token = 0

---@class midfill.Options set as vim.g.midfill before the plugin loads
---@field keys? boolean whether to map keys (true)
---@field operator? string fills what a motion covers, or the visual selection ('gm')
---@field ghost_accept? string takes the ghost text, in insert mode ('<C-l>')
---@field accept? string keeps a pending fill ('<C-y>')
---@field discard? string puts back what was there before a pending fill ('<C-e>')
---@field reroll? string fills a pending fill again, keeping its surest tokens and what was typed ('<C-g>')
---@field next? string shows the next alternative of a pending fill ('<C-n>')
local options = {
  keys = true, operator = 'gm', ghost_accept = '<C-l>', accept = '<C-y>', discard = '<C-e>', reroll = '<C-g>',
  next = '<C-n>',
}

local function fail(message)
  vim.notify(message, vim.log.levels.ERROR)
end

local function client_of(buffer)
  local client = vim.lsp.get_clients({ name = 'midfill', bufnr = buffer })[1]
  if not client then
    fail('Midfill: no server runs for this buffer; see :checkhealth midfill')
  end
  return client
end

--- A range as the server counts it, of { row, byte column, row, byte column } from 0, the end not in it.
local function range_of(client, buffer, range)
  local function position(row, column)
    local line = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1] or ''
    local character = vim.str_utfindex(line, client.offset_encoding, math.min(column, #line), false)
    return { line = row, character = character }
  end
  return { start = position(range[1], range[2]), ['end'] = position(range[3], range[4]) }
end

local function at_cursor()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  return { row - 1, column, row - 1, column }
end

--- Draws a pending fill in its buffer and maps its keys; nil takes both away.
local function show_pending(buffer, result)
  marks.clear_pending(buffer)
  if result then
    marks.pending(buffer, result, options)
  end
  vim.b[buffer].midfill_pending = result and result.id
  for _, name in ipairs({ 'accept', 'discard', 'reroll', 'next' }) do
    pcall(vim.keymap.del, 'n', options[name], { buffer = buffer })
    if result and options.keys then
      vim.keymap.set('n', options[name], function() M.run(name, buffer) end, { buffer = buffer, desc = 'Midfill: ' .. name })
    end
  end
end

local function take_answer(buffer)
  return function(error, result)
    marks.clear_preview(buffer)
    if not vim.api.nvim_buf_is_valid(buffer) then
      return
    end
    if not error then
      return show_pending(buffer, result.holes and result.id and result or nil)
    end
    if type(error.data) == 'table' and error.data.pending == false then
      show_pending(buffer, nil)
    end
    return error.code ~= vim.lsp.protocol.ErrorCodes.RequestCancelled and error.code ~= -32800 and fail(error.message)
  end
end

--- Sends what `:Midfill cancel` can end: a fill or a reroll.
local function ask(client, method, params, buffer)
  local _, id = client:request(method, params, take_answer(buffer), buffer)
  M.cancel = function()
    client:cancel_request(id)
    marks.clear_preview(buffer)
  end
end

local function next_token(buffer)
  last_token = last_token + 1
  marks.expect(last_token, buffer)
  return last_token
end

--- Asks for a fill of `what` (body, selection, stubs, hole) and has the server put it in as one undo step.
--- Each of `ranges`, by default the cursor, is { row, byte column, row, byte column } from 0, the end not in it.
function M.fill(what, ranges, extra)
  local buffer = vim.api.nvim_get_current_buf()
  local client = client_of(buffer)
  if not client then
    return
  end
  local params = vim.tbl_extend('force', {
    uri = vim.uri_from_bufnr(buffer), what = what, version = vim.lsp.util.buf_versions[buffer], apply = true,
    ranges = vim.tbl_map(function(range) return range_of(client, buffer, range) end, ranges or { at_cursor() }), previewToken = next_token(buffer), alternatives = 3,
  }, extra or {})
  ask(client, 'midfill/fill', params, buffer)
end

--- Runs accept, discard, reroll, shorter, longer, next or finish on the buffer's pending or running fill.
function M.run(name, buffer)
  buffer = buffer or vim.api.nvim_get_current_buf()
  local client = client_of(buffer)
  if not client then
    return
  end
  local argument = { id = name ~= 'finish' and vim.b[buffer].midfill_pending or nil }
  if name ~= 'finish' and not argument.id then
    return fail('Midfill: nothing is pending here')
  end
  if name == 'shorter' or name == 'longer' then
    argument.length, name = name, 'reroll'
  end
  local params = { command = 'midfill.' .. name, arguments = { next(argument) and argument or vim.empty_dict() } }
  if name == 'reroll' then
    argument.previewToken = next_token(buffer)
    return ask(client, 'workspace/executeCommand', params, buffer)
  end
  local done = name == 'finish' and function() end or take_answer(buffer)
  client:request('workspace/executeCommand', params, done, buffer)
end

--- Remembers the selection, or the cursor, as one of the holes that `:Midfill holes` fills jointly.
function M.add(range)
  local buffer = vim.api.nvim_get_current_buf()
  holes[buffer] = holes[buffer] or {}
  table.insert(holes[buffer], marks.hole(buffer, range))
end

--- Fills all remembered holes of the buffer in one pass: each sees the others while they are written.
function M.fill_holes()
  local buffer = vim.api.nvim_get_current_buf()
  if not holes[buffer] then
    return fail('Midfill: add holes first, with :Midfill add')
  end
  M.fill('selection', vim.tbl_map(function(mark) return marks.take_hole(buffer, mark) end, holes[buffer]))
  holes[buffer] = nil
end

--- The range between two marks.
local function marked(first, last, linewise)
  local from, to = vim.api.nvim_buf_get_mark(0, first), vim.api.nvim_buf_get_mark(0, last)
  local line = vim.api.nvim_buf_get_lines(0, to[1] - 1, to[1], false)[1] or ''
  if linewise then
    return { from[1] - 1, 0, to[1] - 1, #line }
  end
  local column = math.min(to[2], math.max(#line - 1, 0))
  return { from[1] - 1, from[2], to[1] - 1, #line == 0 and 0 or column + vim.str_utf_end(line, column + 1) + 1 }
end

--- The operator: fills what the motion covered.
function M.operator(kind)
  if kind == nil then
    vim.o.operatorfunc = "v:lua.require'midfill'.operator"
    return 'g@'
  end
  M.fill('selection', { marked('[', ']', kind == 'line') })
end

--- What a command's range covers: the visual selection where it is that one's lines, else all of its lines.
local function selected(command)
  if command.range == 0 then
    return nil
  end
  local from, to = vim.api.nvim_buf_get_mark(0, '<'), vim.api.nvim_buf_get_mark(0, '>')
  if command.line1 == from[1] and command.line2 == to[1] then
    return marked('<', '>', vim.fn.visualmode() == 'V')
  end
  return { command.line1 - 1, 0, command.line2 - 1, #vim.fn.getline(command.line2) }
end

--- A word or two for a statusline: '', 'midfill', 'midfill …' while it fills, 'midfill !' after a failure.
function M.statusline()
  local status = M.status
  if not status then
    return ''
  end
  return 'midfill' .. (status.busy and ' …' or status.kind == 'Error' and ' !' or '')
end

local subcommands = {
  body = function() M.fill('body') end,
  stubs = function() M.fill('stubs', {}) end,
  hole = function() M.fill('hole') end,
  holes = M.fill_holes,
  cancel = function() if M.cancel then M.cancel() end end,
  status = function() vim.print(M.status or 'Midfill has not been used yet') end,
  selection = function(command)
    local row = vim.fn.line('.') - 1
    M.fill('selection', { selected(command) or { row, 0, row, #vim.api.nvim_get_current_line() } })
  end,
  add = function(command) M.add(selected(command) or at_cursor()) end,
}
for _, name in ipairs({ 'accept', 'discard', 'reroll', 'shorter', 'longer', 'next', 'finish' }) do
  subcommands[name] = function() M.run(name) end
end

local function complete(lead)
  return vim.tbl_filter(function(name) return vim.startswith(name, lead) end, vim.fn.sort(vim.tbl_keys(subcommands)))
end

function M.setup()
  vim.g.loaded_midfill = true
  options = vim.tbl_extend('force', options, vim.g.midfill or {})
  vim.api.nvim_create_user_command('Midfill', function(command)
    local run = subcommands[command.args == '' and 'body' or command.args]
    if not run then
      return fail('Midfill: no such command; known are ' .. table.concat(complete(''), ', '))
    end
    run(command)
  end, { nargs = '?', range = true, complete = complete, desc = 'Fill gaps in code' })
  if options.keys then
    vim.keymap.set('n', options.operator, M.operator, { expr = true, desc = 'Midfill: fill what a motion covers' })
    vim.keymap.set('x', options.operator, ':Midfill selection<CR>', { silent = true, desc = 'Midfill: fill the selection' })
  end
  vim.api.nvim_create_autocmd('LspDetach', { callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == 'midfill' then
      show_pending(event.buf, nil) -- the next server counts its fills from 1 again
    end
  end })
  require('midfill.ghost').setup(options)
  vim.lsp.enable('midfill')
end

return M
