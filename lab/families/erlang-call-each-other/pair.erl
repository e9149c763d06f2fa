%% SPDX-License-Identifier: MIT
-module(pair).
-behaviour(gen_server).
-export([main/0, init/1, handle_call/3, handle_cast/2]).

main() ->
    {ok, Left} = gen_server:start(?MODULE, none, []),
    {ok, Right} = gen_server:start(?MODULE, none, []),
    gen_server:cast(Left, {meet, Right}),
    gen_server:cast(Right, {meet, Left}),
    timer:sleep(500),
    ok = file:write_file(os:getenv("LAB_TRUTH"), "ready\n", [append]),
    gen_server:call(Left, stop, infinity).

init(State) -> {ok, State}.

handle_call(stop, _From, State) -> {stop, normal, ok, State};
handle_call(hello, _From, State) -> {reply, ok, State}.

handle_cast({meet, Other}, State) ->
    timer:sleep(100),
    ok = gen_server:call(Other, hello, infinity),
    {noreply, State}.
