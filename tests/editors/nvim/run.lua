-- Runs in a headless Neovim with the plugin and a real server whose fills follow a script. Prints one line a test.
local FILL, GUESS = "return 'ß😀'", "return '😀ß' or x"
local SOURCE = { '# 😀', 'import os', '', '', 'def first(a):', "    '''Doc.'''", '    ...', '', '', 'def second(b):', '    return b + 1' }
local tests, names = {}, {}
local midfill = require('midfill')
local notices = {}
vim.notify = function(message) table.insert(notices, message) end

local function test(name, run)
  tests[name] = run
  table.insert(names, name)
end

local function equal(got, wanted, what)
  if not vim.deep_equal(got, wanted) then
    error(('%s\n  got    %s\n  wanted %s'):format(what or 'not equal', vim.inspect(got), vim.inspect(wanted)), 2)
  end
end

local function wait(what, condition, timeout_ms)
  if not vim.wait(timeout_ms or tonumber(vim.env.TEST_WAIT_MS or 60000), condition, 5) then
    error('waited in vain for ' .. what .. '; notices: ' .. vim.inspect(notices), 2)
  end
end

local function client()
  return vim.lsp.get_clients({ name = 'midfill', bufnr = 0 })[1]
end

local function lines() return vim.api.nvim_buf_get_lines(0, 0, -1, false) end
local function with(row, text)
  local changed = vim.deepcopy(SOURCE)
  changed[row] = text
  return changed
end
local function configure(values)
  client():notify('workspace/didChangeConfiguration', { settings = { midfill = vim.tbl_isempty(values) and vim.empty_dict() or values } })
end
--- Fills wait before every step but the first until the function that this returns names it, or nothing for all.
local function gate(values)
  local folder = vim.fn.tempname()
  vim.fn.mkdir(folder)
  configure(vim.tbl_extend('force', { model = 'gate:' .. folder }, values or {}))
  return function(step) vim.fn.writefile({}, ('%s/%s'):format(folder, step or 'open')) end
end
--- Returns when the server has handled what was sent so far, and what it had sent before is handled here.
local function settle()
  assert(client():request_sync('midfill/status', vim.empty_dict(), 60000, 0))
end
local function marks_of(name)
  local namespace = vim.api.nvim_get_namespaces()['midfill.' .. name]
  return vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })
end
local function pending() return vim.b.midfill_pending end
local function shown()
  local text = {}
  for _, mark in ipairs(marks_of('preview')) do
    for _, line in ipairs(mark[4].virt_lines or {}) do
      for _, chunk in ipairs(line) do
        table.insert(text, chunk[2] .. ':' .. chunk[1])
      end
    end
  end
  return table.concat(text, '|')
end
local function press(keys) vim.api.nvim_feedkeys(vim.keycode(keys), 'xt', false) end

local count = 0
local function open(source)
  count = count + 1
  vim.cmd('enew!')
  vim.api.nvim_buf_set_name(0, ('%s/test%d.py'):format(vim.env.TEST_FOLDER, count))
  local levels = vim.bo.undolevels
  vim.bo.undolevels = -1 -- the text is where undo ends
  vim.api.nvim_buf_set_lines(0, 0, -1, false, source or SOURCE)
  vim.bo.undolevels = levels
  vim.bo.filetype = 'python'
  wait('the server', function() return client() and client().initialized end)
  configure({})
  notices = {}
end

for part, wanted in pairs({ all = FILL, word = 'return', line = FILL }) do
test('ghost text is shown and taken: ' .. part, function()
  open({ 'def f():', '    ', '' })
  vim.api.nvim_win_set_cursor(0, { 2, 4 })
  local taken = false
  vim.api.nvim_create_autocmd('InsertEnter', { once = true, callback = function()
    vim.schedule(function()
      vim.api.nvim_buf_set_text(0, 1, 4, 1, 4, { ' ' }) -- a key, as a user would type one
      vim.api.nvim_win_set_cursor(0, { 2, 5 })
      if not vim.lsp.inline_completion then
        require('midfill.ghost').request()
      end
    end)
  end })
  local timer, started = assert(vim.uv.new_timer()), vim.uv.now()
  timer:start(300, 30, vim.schedule_wrap(function()
    if vim.uv.now() - started > 50000 then
      vim.api.nvim_input('<Esc>')
    elseif not taken and vim.fn.mode() == 'i' then
      taken = require('midfill.ghost').accept(part ~= 'all' and part or nil)
      if taken then
        timer:stop()
        vim.defer_fn(function() vim.api.nvim_input('<Esc>') end, 200)
      end
    end
  end))
  vim.api.nvim_feedkeys('A', 'n', false)
  vim.api.nvim_feedkeys('', 'x!', false)
  timer:stop()
  equal(taken and true, true, 'nothing was suggested')
  equal(vim.trim(lines()[2]), wanted)
end)
end

test('ghost text that two events ask for is drawn once', function()
  if vim.lsp.inline_completion then
    return
  end
  open({ 'def f():', '    ', '' })
  configure({ debounceMs = 0 })
  vim.api.nvim_win_set_cursor(0, { 2, 4 })
  local request, num_marks, num_left = require('midfill.ghost').request, nil, nil
  client().cancel_request = function() return true end -- the answers are on their way already
  vim.api.nvim_create_autocmd('InsertEnter', { once = true, callback = function()
    vim.schedule(function()
      pcall(function()
        wait('ghost text', function() return request() or vim.wait(500, function() return #marks_of('ghost') > 0 end) end)
        request()
        request()
        wait('both answers', function() return vim.tbl_isempty(client().requests) end)
        num_marks = #marks_of('ghost')
        vim.api.nvim_exec_autocmds('TextChangedP', {}) -- an item of the completion menu, for which there is no other event
        num_left = #marks_of('ghost')
      end)
      vim.api.nvim_input('<Esc>')
    end)
  end })
  vim.api.nvim_feedkeys('A', 'n', false)
  vim.api.nvim_feedkeys('', 'x!', false)
  client().cancel_request = nil
  equal({ num_marks, num_left }, { 1, 0 })
end)

test("ghost text is the file's own until the engine has judged it", function()
  local source = {}
  for _, name in ipairs({ 'size', 'age', 'kind', 'owner' }) do
    vim.list_extend(source, { ('def %s(path):'):format(name), '    check(path)', ('    return %s_of(path)'):format(name), '' })
  end
  source[14] = '    '
  open(source)
  local let, seen = gate({ ghostTextCertainty = 0.1, debounceMs = 0 }), {}
  vim.api.nvim_win_set_cursor(0, { 14, 4 })
  local function ghost()
    for _, name in ipairs({ 'midfill.ghost', 'nvim.lsp.inline_completion' }) do
      local namespace = vim.api.nvim_get_namespaces()[name]
      local mark = namespace and vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { details = true })[1]
      if mark then
        return mark[4].virt_text[1][1]
      end
    end
  end
  local timer, started = assert(vim.uv.new_timer()), vim.uv.now()
  timer:start(30, 30, vim.schedule_wrap(function()
    local text = ghost()
    if text and text ~= seen[#seen] then
      table.insert(seen, text)
    end
    if text == 'check(path)' then
      let()
    elseif text == FILL or vim.uv.now() - started > 50000 then
      timer:stop()
      vim.api.nvim_input('<Esc>')
    end
  end))
  vim.api.nvim_feedkeys('A', 'n', false)
  vim.api.nvim_feedkeys('', 'x!', false)
  timer:stop()
  equal(seen, { 'check(path)', FILL })
end)

test('fill a body: previews sharpen, one undo restores', function()
  open()
  local let = gate()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('guesses', function() return shown() ~= '' end)
  assert(not shown():find('Settled'), shown())
  vim.wait(100) -- the next preview comes no sooner than 1/15 s after it
  let(1)
  wait('settled tokens', function() return shown():find('Settled') end)
  equal(shown(), "MidfillGuess:    |MidfillSettled:return '😀|MidfillGuess:ß'|MidfillFaint: or|MidfillFaint: x")
  let()
  wait('the fill', pending)
  equal(lines(), with(11, '    ' .. FILL))
  equal(shown(), '', 'the preview stays')
  vim.cmd('Midfill accept')
  wait('accept', function() return not pending() end)
  equal(marks_of('pending'), {})
  vim.cmd('silent undo')
  equal(lines(), SOURCE, 'one undo restores')
end)

test('previews leave the buffer alone', function()
  open()
  local let = gate()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  local tick = vim.b.changedtick
  vim.cmd('Midfill')
  wait('a preview', function() return shown() ~= '' end)
  equal({ vim.b.changedtick, lines() }, { tick, SOURCE })
  vim.cmd('Midfill cancel')
  settle()
  let()
  wait('the end', function() return midfill.statusline() == 'midfill' end)
  settle()
  equal({ lines(), shown(), pending() }, { SOURCE, '', nil })
end)

test('the weakest token is underlined where it stands, after wide characters too', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local weak = vim.tbl_filter(function(mark) return mark[4].hl_group == 'MidfillWeak' end, marks_of('pending'))
  equal(#weak, 1)
  equal(vim.api.nvim_buf_get_text(0, weak[1][2], weak[1][3], weak[1][4].end_row, weak[1][4].end_col, {}), { "'ß😀'" })
end)

test('reroll keeps what was typed, discard puts the old text back', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local first = pending()
  vim.api.nvim_buf_set_text(0, 10, 11, 10, 11, { 'typed or ' })
  press('<C-g>')
  wait('the reroll', function() return pending() and pending() ~= first end)
  equal(lines(), with(11, '    return typed or  + new'))
  press('<C-e>')
  wait('discard', function() return not pending() end)
  equal(lines(), SOURCE)
  equal(vim.fn.maparg('<C-e>', 'n'), '', 'the key stays mapped')
end)

test('next alternative', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local first = pending()
  press('<C-n>')
  wait('the next', function() return pending() and pending() ~= first end)
  equal(lines(), with(11, '    return 1'))
end)

test('all stubs, two holes jointly, one undo each', function()
  open({ 'def f(): ...', '', 'def g(): ...' })
  vim.cmd('Midfill stubs')
  wait('the fill', pending)
  equal(lines(), { 'def f():', '    ' .. FILL, '', 'def g():', '    ' .. FILL })
  vim.cmd('silent undo')
  equal(lines(), { 'def f(): ...', '', 'def g(): ...' })
  open({ 'a = 1', 'b = 22', 'c = 3' })
  vim.api.nvim_win_set_cursor(0, { 1, 4 })
  press('v:Midfill add<CR>')
  vim.api.nvim_win_set_cursor(0, { 2, 4 })
  press('vl:Midfill add<CR>')
  vim.cmd('Midfill holes')
  wait('the fill', pending)
  equal(lines(), { 'a = ' .. FILL, 'b = ' .. FILL, 'c = 3' })
  vim.cmd('silent undo')
  equal(lines(), { 'a = 1', 'b = 22', 'c = 3' })
end)

test('the operator takes a motion, a text object and the visual selection', function()
  for _, keys in ipairs({ 'gmi(', 'gmt)', 'vi(gm' }) do
    open({ 'call(😀 + x)' })
    vim.api.nvim_win_set_cursor(0, { 1, 5 })
    press(keys)
    wait('the fill', pending)
    equal(lines(), { 'call(' .. FILL .. ')' }, keys)
  end
end)

test('a fill that is ended early takes the guesses', function()
  open()
  local let = gate({ steps = 300 })
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  vim.cmd('Midfill finish')
  settle()
  let(1)
  wait('the fill', pending)
  equal(lines(), with(11, '    ' .. GUESS))
end)

test('an edit inside the hole wins, an edit elsewhere moves the fill', function()
  open()
  local let = gate()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  vim.api.nvim_buf_set_text(0, 10, 6, 10, 6, { 'XX' })
  settle()
  let(1)
  wait('the refusal', function() return #notices > 0 end)
  assert(notices[1]:find('changed meanwhile'), notices[1])
  equal(lines(), with(11, '    reXXturn b + 1'))
  open()
  let = gate()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  vim.api.nvim_buf_set_lines(0, 0, 0, false, { '# typed', '# twice' })
  settle()
  let()
  wait('the fill', pending)
  equal(lines()[13], '    ' .. FILL)
end)

test('a line typed just before the edit comes is told at once and moves the fill, at every version', function()
  for _, is_first in ipairs({ true, false }) do
    open()
    if not is_first then
      vim.api.nvim_buf_set_text(0, 1, 9, 1, 9, { ' ' })
    end
    vim.api.nvim_win_set_cursor(0, { 11, 8 })
    local own, apply, is_told = client(), client().handlers['workspace/applyEdit'], false
    local take = apply or vim.lsp.handlers['workspace/applyEdit']
    own.handlers['workspace/applyEdit'] = function(...)
      own.handlers['workspace/applyEdit'] = apply
      own.notify = function(self, method, params)
        is_told = is_told or method == 'textDocument/didChange'
        return getmetatable(self).__index.notify(self, method, params)
      end
      vim.api.nvim_buf_set_lines(0, 0, 0, false, { '# typed' })
      own.notify = nil
      return take(...)
    end
    vim.cmd('Midfill body')
    wait('the fill', pending)
    local wanted = with(11, '    ' .. FILL)
    wanted[2] = is_first and 'import os' or 'import os '
    table.insert(wanted, 1, '# typed')
    equal(lines(), wanted)
    assert(is_told, 'the change waits')
  end
end)

test('a fill is pending in its buffer alone', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local first = vim.api.nvim_get_current_buf()
  open()
  for _, name in ipairs({ 'discard', 'reroll', 'next', 'accept' }) do
    notices = {}
    vim.cmd('Midfill ' .. name)
    wait('the sentence', function() return #notices > 0 end)
    equal(notices, { 'Midfill: nothing is pending here.' })
  end
  settle()
  equal(vim.api.nvim_buf_get_lines(first, 0, -1, false), with(11, '    ' .. FILL))
  equal(lines(), SOURCE)
end)

test('a fill that an edit cut in two loses its marks and keys', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  vim.api.nvim_buf_set_text(0, 9, 4, 10, 8, { '' })
  wait('the news', function() return not pending() end)
  equal({ pending(), vim.fn.maparg('<C-e>', 'n'), marks_of('pending') }, { nil, '', {} })
end)

test('cancel stops a reroll', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local first, let = pending(), gate()
  press('<C-g>')
  wait('a preview', function() return shown() ~= '' end)
  vim.cmd('Midfill cancel')
  settle()
  let()
  wait('the end', function() return midfill.statusline() == 'midfill' end)
  settle()
  equal({ lines(), pending(), shown() }, { with(11, '    ' .. FILL), first, '' })
end)

test('a range is its lines, the visual selection where it is that one', function()
  open({ 'a = 1', 'b = 2', 'c = 3' })
  vim.cmd('1,2Midfill selection')
  wait('the fill', pending)
  equal(lines(), { FILL, 'c = 3' })
  open({ 'a = 1', 'b = 2', 'c = 3' })
  vim.api.nvim_win_set_cursor(0, { 3, 0 })
  press('v<Esc>')
  vim.cmd('1,2Midfill selection')
  wait('the fill', pending)
  equal(lines(), { FILL, 'c = 3' })
end)

test('a block is refused, and the lines of a range hold whatever was selected on them', function()
  open({ 'a = 1', 'b = 2', 'c = 3' })
  for _, keys in ipairs({ 'l<C-v>jlgm', 'gm<C-v>j', '<C-v>jl:Midfill add<CR>' }) do
    notices = {}
    vim.api.nvim_win_set_cursor(0, { 1, 1 })
    press(keys)
    equal(notices, { 'Midfill: a block is not one hole; select characters or lines' }, keys)
  end
  settle()
  equal({ lines(), marks_of('holes') }, { { 'a = 1', 'b = 2', 'c = 3' }, {} })
  vim.api.nvim_win_set_cursor(0, { 2, 2 })
  press('v<Esc>')
  vim.cmd('2Midfill selection')
  wait('the fill', pending)
  equal(lines(), { 'a = 1', FILL, 'c = 3' })
  open({ 'a = 1', 'b = 2', 'c = 3' })
  vim.api.nvim_win_set_cursor(0, { 1, 2 })
  press('vj<Esc>')
  press(':1,2Midfill selection<CR>')
  wait('the fill', pending)
  equal(lines(), { FILL, 'c = 3' })
  open({ 'a = 1', 'b = 2', 'c = 3' })
  vim.api.nvim_win_set_cursor(0, { 1, 4 })
  press('vjhhhh:Midfill selection<CR>')
  wait('the fill', pending)
  equal(lines(), { 'a = ' .. FILL .. ' = 2', 'c = 3' })
  press('u')
  wait('the end', function() return not pending() end)
  vim.cmd("'<,'>Midfill selection")
  wait('the fill', pending)
  equal(lines(), { 'a = ' .. FILL .. ' = 2', 'c = 3' })
end)

test('a buffer without a name, and a server that starts, are said to be so', function()
  open()
  client():stop(true)
  wait('the end of the server', function() return not client() end)
  vim.cmd('enew!')
  vim.api.nvim_buf_set_lines(0, 0, -1, false, SOURCE)
  vim.bo.filetype = 'python'
  vim.cmd('Midfill body')
  wait('the server', function() return client() and client().initialized end)
  vim.cmd('Midfill body')
  equal(notices, { 'Midfill: the server is starting; try again in a moment', 'Midfill: this buffer has no name; save it first' })
  vim.api.nvim_buf_set_lines(0, 2, 2, false, { 'import sys' })
  local command = { command = 'midfill.fill', arguments = { { uri = vim.uri_from_bufnr(0), what = 'stubs' } } } -- as a code action's
  equal(client():request_sync('workspace/executeCommand', command, 60000, 0).err.message, 'Midfill: this buffer has no name; save it first.')
  client():stop(true)
  wait('the end of the server', function() return not client() end)
  equal(vim.tbl_filter(function(buffer) return vim.api.nvim_buf_get_name(buffer) == '/' end, vim.api.nvim_list_bufs()), {})
  vim.bo.modified = false
end)

test('what the server has shown itself is not said again', function()
  open()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  local own, told = client(), {}
  configure({ model = 'fails' })
  own.handlers['window/showMessage'] = function(_, params) table.insert(told, params.message) end
  press('<C-g>')
  wait('the sentence', function() return #told + #notices > 0 end)
  settle()
  own.handlers['window/showMessage'] = nil
  equal({ #told, notices }, { 1, {} })
end)

test('scripts in files of Vue are filled', function()
  open()
  vim.cmd('edit! ' .. vim.env.TEST_FOLDER .. '/test.vue')
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { '<script>', 'function f() {', '  return 1;', '}', '</script>' })
  vim.bo.filetype = 'vue'
  wait('the server', function() return client() and client().initialized end)
  vim.api.nvim_win_set_cursor(0, { 3, 4 })
  vim.cmd('Midfill body')
  wait('the fill', pending)
  equal(lines()[3], '  ' .. FILL)
end)

test('a buffer that is wiped out during its fill is no error', function()
  open()
  gate()
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  vim.v.errmsg = ''
  local server = client()
  vim.cmd('bwipeout!')
  wait('the end', function() return midfill.statusline() == 'midfill' end)
  assert(server:request_sync('midfill/status', vim.empty_dict(), 60000, 0))
  equal({ vim.v.errmsg, notices }, { '', {} })
end)

test('a pending fill is forgotten with its server, and no fill of another folder\'s server', function()
  open()
  local function fill()
    vim.api.nvim_win_set_cursor(0, { 11, 8 })
    vim.cmd('Midfill body')
    wait('the fill', pending)
    return vim.api.nvim_get_current_buf()
  end
  local buffer = fill()
  vim.fn.mkdir(vim.env.TEST_FOLDER .. '/other/.git', 'p')
  vim.cmd.edit(vim.env.TEST_FOLDER .. '/other/t.py')
  vim.api.nvim_buf_set_lines(0, 0, -1, false, SOURCE)
  vim.bo.filetype = 'python'
  wait('its server', function() return client() and client().initialized end)
  for _, is_left in ipairs({ true, false }) do
    local other = is_left and fill()
    client():stop(true)
    wait('the end of the server', function() return not client() end)
    equal({ pending(), vim.fn.maparg('<C-e>', 'n'), marks_of('pending') }, { nil, '', {} })
    vim.cmd.buffer(buffer)
    equal({ pending() ~= nil, vim.fn.maparg('<C-e>', 'n') ~= '', #marks_of('pending') > 0 }, { is_left, is_left, is_left })
    vim.cmd(other and 'bwipeout! ' .. other or '')
  end
end)

local TWO = { 'def first(a):', '    return a', '', '', 'def second(b):', '    return b' }
local function fill_at(row)
  local before = pending()
  vim.api.nvim_win_set_cursor(0, { row, 6 })
  vim.cmd('Midfill body')
  wait('the fill', function() return pending() and pending() ~= before end)
end

test('only the lengths that the model heeds are completed', function()
  open(TWO)
  fill_at(2)
  local function complete() return vim.fn.getcompletion('Midfill longe', 'cmdline') end
  equal(complete(), { 'longer' })
  vim.cmd('Midfill discard')
  wait('the end', function() return not pending() end)
  equal(complete(), { 'longer' })
end)
local function num_hints()
  return #vim.tbl_filter(function(mark) return mark[4].virt_text ~= nil end, marks_of('pending'))
end

test('keys act on the fill under the cursor, then on this buffer', function()
  open(TWO)
  fill_at(2)
  fill_at(6)
  equal(num_hints(), 2)
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  press('<C-y>')
  wait('accept', function() return num_hints() == 1 end)
  press('<C-e>')
  wait('discard', function() return not pending() end)
  equal(lines(), { 'def first(a):', '    ' .. FILL, '', '', 'def second(b):', '    return b' })
end)

-- Begins the fills of both bodies; returns what lets them go on.
local function begin_both()
  open(TWO)
  local let = gate({ steps = 300 })
  for _, row in ipairs({ 2, 6 }) do
    vim.api.nvim_win_set_cursor(0, { row, 6 })
    vim.cmd('Midfill body')
  end
  wait('both previews', function() return select(2, shown():gsub('MidfillGuess:    ', '')) == 2 end)
  return let
end

test('cancel and finish act on the fill at the cursor, in its buffer', function()
  local let = begin_both()
  local first = vim.api.nvim_get_current_buf()
  count = count + 1
  vim.cmd('enew!')
  vim.api.nvim_buf_set_name(0, ('%s/test%d.py'):format(vim.env.TEST_FOLDER, count))
  vim.bo.filetype = 'python'
  wait('the server', client)
  vim.cmd('Midfill cancel')
  equal(notices, { 'Midfill: no fill is running here' })
  vim.cmd('Midfill finish')
  wait('the sentence', function() return #notices > 1 end)
  equal(notices[2], 'Midfill: no fill is running here.')
  vim.cmd('hide buffer ' .. first)
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  vim.cmd('Midfill cancel')
  wait('one preview', function() return select(2, shown():gsub('MidfillGuess:    ', '')) == 1 end)
  vim.cmd('Midfill finish')
  settle()
  let()
  wait('the fill', pending)
  equal(lines(), { 'def first(a):', '    return a', '', '', 'def second(b):', '    ' .. GUESS })
end)

test('a fill that is undone is no longer pending, redo brings plain text', function()
  open(TWO)
  fill_at(2)
  vim.cmd('silent undo')
  equal(lines(), TWO)
  wait('the news', function() return not pending() end)
  equal({ num_hints(), vim.fn.maparg('<C-e>', 'n') }, { 0, '' })
  vim.cmd('silent redo')
  settle()
  equal({ lines()[2], pending() }, { '    ' .. FILL, nil })
end)

test("the user's own maps of the buffer come back", function()
  open(TWO)
  local called = 0
  vim.keymap.set('n', '<C-e>', function() called = called + 1 end, { buffer = true })
  vim.keymap.set('n', '<C-n>', 'ix', { buffer = true, desc = 'mine' })
  fill_at(2)
  press('<C-e>')
  wait('discard', function() return not pending() end)
  equal(lines(), TWO)
  press('<C-e>')
  equal({ called, vim.fn.maparg('<C-n>', 'n'), vim.fn.maparg('<C-y>', 'n') }, { 1, 'ix', '' })
end)

test('old lines are shown beside the new ones, and hunks are kept and put back one by one', function()
  local old = { 'def f(a):', '    first = 1', '    second = 2', '    third = 3' }
  open(old)
  configure({ model = 'writes:first = one\n    second = 2\n    third = three\n    fourth = 4' })
  fill_at(3)
  local function removed()
    local text = {}
    for _, mark in ipairs(marks_of('pending')) do
      for _, line in ipairs(mark[4].virt_lines or {}) do
        table.insert(text, line[1][1] .. line[2][1])
      end
    end
    return text
  end
  equal(removed(), {})
  press('<C-t>')
  equal(removed(), { '    first = 1', '    third = 3' })
  equal(#vim.tbl_filter(function(mark) return mark[4].hl_group == 'MidfillAdded' end, marks_of('pending')), 2)
  vim.api.nvim_win_set_cursor(0, { 5, 6 })
  press('g<C-e>')
  wait('one hunk less', function() return #removed() == 1 end)
  equal(lines(), { 'def f(a):', '    first = one', '    second = 2', '    third = 3' })
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  press('g<C-y>')
  wait('the end', function() return not pending() end)
  equal({ removed(), vim.fn.maparg('g<C-y>', 'n'), lines()[2] }, { {}, '', '    first = one' })
end)

test('holes are kept and put back one by one', function()
  open({ 'def f(): ...', '', 'def g(): ...' })
  vim.cmd('Midfill stubs')
  wait('the fill', pending)
  vim.api.nvim_win_set_cursor(0, { 5, 6 })
  vim.cmd('Midfill discard_hole')
  wait('the old text', function() return lines()[4] == 'def g(): ...' end)
  equal(lines()[2], '    ' .. FILL)
  assert(pending(), 'the other hole is no longer pending')
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  vim.cmd('Midfill accept_hole')
  wait('the end', function() return not pending() end)
end)

test('a hole is widened and shrunk where it is shown, and filled', function()
  open({ 'def f(a):', '    if a:', "        x = '😀' + g(a)", '        y = 2', '    return 1' })
  local function shown_hole()
    local marks = marks_of('holes')
    local mark = marks[1]
    return mark and table.concat(vim.api.nvim_buf_get_text(0, mark[2], mark[3], mark[4].end_row, mark[4].end_col, {}), '|')
  end
  vim.api.nvim_win_set_cursor(0, { 3, 20 })
  for _, wanted in ipairs({ "x = '😀' + g(a)", "x = '😀' + g(a)|        y = 2", "if a:|        x = '😀' + g(a)|        y = 2" }) do
    press('<M-k>')
    wait(wanted, function() return shown_hole() == wanted end)
  end
  press('<M-j>')
  equal(shown_hole(), "x = '😀' + g(a)|        y = 2")
  press('<M-CR>')
  wait('the fill', pending)
  equal({ lines(), shown_hole() }, { { 'def f(a):', '    if a:', '        ' .. FILL, '    return 1' }, nil })
  vim.cmd('Midfill widen')
  wait('a hole', shown_hole)
  vim.cmd('Midfill shrink')
  equal(shown_hole(), nil)
  vim.cmd('Midfill widen')
  vim.api.nvim_buf_set_lines(0, 0, 0, false, { '# typed before the answer', '' })
  settle()
  equal(shown_hole(), nil)
end)

test('snooze is told by the status and ends', function()
  open()
  vim.cmd('Midfill snooze')
  wait('the status', function() return midfill.statusline() == 'midfill z' end)
  vim.cmd('Midfill wake')
  wait('the status', function() return midfill.statusline() == 'midfill' end)
end)

test('a server that dies takes its preview with it and is started again', function()
  open(TWO)
  gate()
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  local dead = client()
  vim.uv.kill(vim.tbl_filter(function(pid)
    return table.concat(vim.fn.readfile('/proc/' .. pid .. '/cmdline'), ' '):find('scripted_server', 1, true)
  end, vim.api.nvim_get_proc_children(vim.fn.getpid()))[1], 'sigkill')
  wait('the sentence', function() return table.concat(notices, ' '):find('it is started again') end)
  equal({ shown(), lines() }, { '', TWO })
  wait('another server', function() return client() and client().id ~= dead.id and client().initialized end)
  configure({})
  notices = {}
  fill_at(2)
  equal({ lines()[2], notices }, { '    ' .. FILL, {} })
end)

test('a dead engine is one sentence, and the next fill works', function()
  open()
  configure({ model = 'dies' })
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill body')
  wait('the message', function() return #notices > 0 end)
  assert(notices[1]:find('a new engine is started'), notices[1])
  equal({ lines(), shown() }, { SOURCE, '' })
  wait('the status', function() return midfill.statusline() == 'midfill !' end)
  configure({})
  vim.cmd('Midfill body')
  wait('the fill', pending)
  wait('the status', function() return midfill.statusline() == 'midfill' end)
end)

test('next edit: what was done twice is shown elsewhere, one key goes there and does it', function()
  local source = { '# 😀', 'import os' }
  for number = 1, 5 do
    table.insert(source, ("self.assertEquals(ß%d, '😀')"):format(number))
  end
  open(source)
  for _, row in ipairs({ 3, 4 }) do
    vim.api.nvim_win_set_cursor(0, { row, 0 })
    press('fsfsfsfsx')
    equal(lines()[row], source[row]:gsub('Equals', 'Equal'))
    settle()
    vim.wait(50)
  end
  wait('the places', function() return #marks_of('repeats') == 7 end) -- three of two marks each, and the key
  press('<M-.>')
  wait('the next place', function() return vim.api.nvim_win_get_cursor(0)[1] == 5 end)
  equal(lines()[5], source[5])
  press('<M-.>')
  wait('the place behind it', function() return vim.api.nvim_win_get_cursor(0)[1] == 6 end)
  equal(lines()[5], source[5]:gsub('Equals', 'Equal'))
  vim.cmd('Midfill all_edits')
  wait('the rest', function() return not table.concat(lines()):find('Equals') end)
  equal(lines(), vim.tbl_map(function(line) return (line:gsub('Equals', 'Equal')) end, source))
  vim.cmd('silent undo')
  equal(lines()[6], source[6], 'one undo for all of them')
  vim.cmd('Midfill dismiss')
  wait('no places', function() return #marks_of('repeats') == 0 end)
  vim.cmd('Midfill next_edit')
  wait('a sentence', function() return #notices > 0 end)
  assert(notices[1]:find('fits nowhere else'), notices[1])
end)

test('fill until tests pass: asked once for a workspace, pending with what it passes', function()
  local folder, asked = vim.env.TEST_FOLDER .. '/shop', {}
  local entered = vim.env.TEST_PYTHON .. ' -m pytest -q -p no:cacheprovider {tests}'
  vim.fn.mkdir(folder)
  vim.fn.writefile(SOURCE, folder .. '/tested.py')
  vim.fn.writefile({ 'import tested', '', 'def test_second():', "    assert tested.second(1) == 'ß😀'" }, folder .. '/test_tested.py')
  open()
  vim.cmd.edit(folder .. '/tested.py')
  vim.bo.filetype = 'python'
  wait('the server', function() return client() and client().initialized end)
  vim.ui.input = function(options, done)
    table.insert(asked, options)
    done(entered)
  end
  vim.api.nvim_win_set_cursor(0, { 11, 8 })
  vim.cmd('Midfill tests')
  wait('the fill', pending)
  equal(lines(), with(11, '    ' .. FILL))
  equal({ #asked, asked[1].default }, { 1, 'pytest -q {tests}' })
  local hint = vim.inspect(marks_of('pending'))
  assert(hint:find('"  ◆ <C%-y> keep.* discard  ✓ passes `.*test_tested.py`"'), hint) -- the keys first
  vim.cmd('Midfill discard')
  wait('discard', function() return not pending() end)
  vim.lsp.commands['midfill.until']()
  wait('the fill again', pending)
  equal(#asked, 1, 'the answer is remembered')
  vim.cmd('Midfill discard')
  wait('discard', function() return not pending() end)
  entered = 'true'
  vim.cmd('Midfill other_tests')
  wait('a sentence', function() return #notices > 0 end)
  assert(notices[1]:find('passes already, without a fill'), notices[1])
  equal({ lines(), #asked }, { SOURCE, 2 })
  vim.fn.delete(folder, 'rf')
end)

test('checkhealth', function()
  open()
  vim.cmd('checkhealth midfill')
  local report = table.concat(lines(), '\n')
  assert(report:find('OK.*server command'), report)
  assert(report:find('Midfill is ready'), report)
  assert(not report:find('ERROR'), report)
end)

test('a fill that was cancelled runs no longer', function()
  local let = begin_both()
  vim.api.nvim_win_set_cursor(0, { 4, 0 })
  for _ = 1, 3 do
    vim.cmd('Midfill cancel')
    settle()
  end
  let()
  settle()
  equal({ lines(), notices }, { TWO, { 'Midfill: no fill is running here' } })
end)

test('a file that is opened again has the keys of its fill', function()
  open(TWO)
  local name = vim.api.nvim_buf_get_name(0)
  vim.fn.writefile(TWO, name)
  fill_at(2)
  vim.cmd('Midfill add')
  vim.cmd('bdelete!')
  vim.cmd('edit ' .. name)
  vim.bo.filetype = 'python'
  wait('the server', function() return client() and client().initialized end)
  equal(vim.fn.maparg('<C-e>', 'n'), '')
  vim.cmd('Midfill holes')
  fill_at(2)
  equal(vim.fn.maparg('<C-e>', 'n', false, true).desc, 'Midfill: discard')
end)

test('a buffer that is wiped out with its fill does not come back', function()
  open(TWO)
  fill_at(2)
  local name, server = vim.api.nvim_buf_get_name(0), client()
  vim.cmd('bwipeout!')
  assert(server:request_sync('midfill/status', vim.empty_dict(), 60000, 0))
  vim.wait(100)
  equal(vim.fn.bufexists(name), 0)
end)

test('holes wait for a server', function()
  open(TWO)
  vim.cmd('Midfill add')
  client():stop(true)
  wait('the end of the server', function() return not client() end)
  vim.cmd('Midfill holes')
  equal(#marks_of('holes'), 1)
end)

test('holes wait again if their fill fails', function()
  open({ 'a = 1', 'b = 2' })
  vim.api.nvim_win_set_cursor(0, { 1, 4 })
  press('v:Midfill add<CR>')
  press('v:Midfill add<CR>')
  vim.cmd('Midfill holes')
  wait('the refusal', function() return #notices > 0 end)
  equal({ #marks_of('holes'), lines() }, { 2, { 'a = 1', 'b = 2' } })
end)

test('a fill of another buffer with the same number runs on', function()
  local function fill_of(id)
    local start = { line = 0, character = 0 }
    return { id = id, holes = { { hunks = {}, range = { start = start, ['end'] = start } } }, weak = {}, newErrors = 0 }
  end
  open(TWO)
  local let = gate()
  vim.api.nvim_win_set_cursor(0, { 2, 6 })
  vim.cmd('Midfill body')
  wait('a preview', function() return shown() ~= '' end)
  local other = vim.uri_from_fname(vim.env.TEST_FOLDER .. '/other.py')
  vim.fn.bufload(vim.uri_to_bufnr(other))
  for id = 1, 300 do
    midfill.show_pending({ uri = other, fills = { fill_of(id) } })
  end
  vim.cmd('Midfill cancel')
  let()
  equal(notices, {})
end)

test('ghost text cancels requests of its own server', function()
  open(TWO)
  local ghost, cancelled = require('midfill.ghost'), {}
  local get_clients = vim.lsp.get_clients
  local function stub(name, id)
    return { offset_encoding = 'utf-8', request = function() return true, id end, cancel_request = function(_, what) table.insert(cancelled, name .. what) end }
  end
  for _, client in ipairs({ stub('one', 1), stub('two', 2) }) do
    vim.lsp.get_clients = function() return { client } end
    ghost.request()
  end
  vim.lsp.get_clients = get_clients
  equal(cancelled, { 'one1' })
end)

test('a selection without its last place is that one', function()
  open({ 'value = äöü' })
  vim.o.selection = 'exclusive'
  press('0wwvll<Esc>')
  local places = require('midfill.places')
  local got = { places.selected({ range = 2, line1 = 1, line2 = 1 }) }
  vim.o.selection = 'inclusive'
  equal({ got[1], places.selected({ range = 2, line1 = 1, line2 = 1 }) }, { { 0, 8, 0, 12 }, { 0, 8, 0, 14 } })
end)

test("checkhealth has no empty words for an engine that is not Midfill's", function()
  open()
  local servers = vim.lsp.get_clients({ name = 'midfill' }) -- perhaps also one of an earlier test
  for _, server in ipairs(servers) do
    server.request_sync = function()
      return { result = { kind = 'Normal', version = '1', message = 'ready', model = 'm', device = 'its own', dtype = '', parameters = 0 } }
    end
  end
  vim.cmd('checkhealth midfill')
  for _, server in ipairs(servers) do
    server.request_sync = nil
  end
  local report = table.concat(lines(), '\n')
  assert(report:find("engine: m, not one of Midfill's own\n"), report)
end)

local failed = 0
names = vim.tbl_filter(function(name) return name:find(vim.env.SCENES or '') end, names)
for _, name in ipairs(names) do
  local ok, problem = xpcall(tests[name], debug.traceback)
  io.stdout:write(('%s %s\n%s'):format(ok and 'ok' or 'FAILED', name, ok and '' or problem .. '\n'))
  failed = failed + (ok and 0 or 1)
end
io.stdout:write(('%d of %d passed on %s\n'):format(#names - failed, #names, tostring(vim.version())))
io.stdout:flush()
os.exit(failed == 0 and 0 or 1)
