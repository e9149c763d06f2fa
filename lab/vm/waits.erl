%% SPDX-License-Identifier: MIT
%% A process waits for what another writes. Each line on stdin makes that write 3.
-module(waits).
-export([main/1]).

main([How]) ->
    ets:new(table, [named_table, public]),
    ets:insert(table, {ready, 0}),
    Cells = atomics:new(16, []),
    persistent_term:put(cells, Cells),
    spawn(fun() -> waits(How, Cells) end),
    writes(Cells).

writes(Cells) ->
    case io:get_line("") of
        eof -> ok;
        _ ->
            atomics:put(Cells, 5, 3),
            ets:insert(table, {ready, 3}),
            writes(Cells)
    end.

waits("atomics", Cells) -> until(fun() -> atomics:get(Cells, 5) =:= 7 end, fun() -> ok end);
waits("yield", Cells) -> until(fun() -> atomics:get(Cells, 5) =:= 7 end, fun erlang:yield/0);
waits("table", _) -> until(fun() -> ets:lookup(table, ready) =:= [{ready, 7}] end, fun() -> ok end);
waits("file", _) -> until(fun() -> filelib:is_file("/tmp/never") end, fun() -> ok end).

until(Test, Pause) ->
    case Test() of
        true -> ok;
        false -> Pause(), until(Test, Pause)
    end.
