BEGIN TRANSACTION;
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1df2da1f2001SHpRuRMq7toR6y','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745672178,1794745677916,'{"role":"user","time":{"created":1794745672178},"agent":"build","model":{"providerID":"maze","modelID":"gpt-5"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745674310,1794745676150,'{"parentID":"msg_1df2da1f2001SHpRuRMq7toR6y","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2351,"input":311,"output":40,"reasoning":0,"cache":{"write":0,"read":2000}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745674310,"completed":1794745676149},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2db18a001C30S1J7hOzy7Zx','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676171,1794745676972,'{"parentID":"msg_1df2da1f2001SHpRuRMq7toR6y","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2561,"input":315,"output":46,"reasoning":0,"cache":{"write":0,"read":2200}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745676171,"completed":1794745676970},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2db266001AkTi2R3Ya3qdEv','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676391,1794745676991,'{"role":"user","time":{"created":1794745676391},"agent":"general","model":{"providerID":"maze","modelID":"gpt-5"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2db2850010NKILVDV6g5FXX','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676421,1794745676701,'{"parentID":"msg_1df2db266001AkTi2R3Ya3qdEv","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2666,"input":317,"output":49,"reasoning":0,"cache":{"write":0,"read":2300}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745676421,"completed":1794745676701},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2db39f001GMrYWrG2GPcWeJ','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676703,1794745676954,'{"parentID":"msg_1df2db266001AkTi2R3Ya3qdEv","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2771,"input":319,"output":52,"reasoning":0,"cache":{"write":0,"read":2400}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745676703,"completed":1794745676954},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1df2db4ae001wtnNFUvXhZCCDO','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676975,1794745677280,'{"parentID":"msg_1df2da1f2001SHpRuRMq7toR6y","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2876,"input":321,"output":55,"reasoning":0,"cache":{"write":0,"read":2500}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745676975,"completed":1794745677279},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1df2db5e2001pPHaFnKnW8NuAR','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677282,1794745677674,'{"parentID":"msg_1df2da1f2001SHpRuRMq7toR6y","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":2981,"input":323,"output":58,"reasoning":0,"cache":{"write":0,"read":2600}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745677282,"completed":1794745677673},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1df2dcf5d001ar0kg8TEZGnIwd','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745683806,1794745686253,'{"role":"user","time":{"created":1794745683806},"agent":"build","model":{"providerID":"maze","modelID":"gpt-5"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1df2dd885001tBm1s54TmmIOXC','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745686149,1794745686997,'{"parentID":"msg_1df2dcf5d001ar0kg8TEZGnIwd","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/tmp/maze","root":"/"},"cost":0,"tokens":{"total":3086,"input":325,"output":61,"reasoning":0,"cache":{"write":0,"read":2700}},"modelID":"gpt-5","providerID":"maze","time":{"created":1794745686149,"completed":1794745686994},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1df2da20c0010fIu4656jfpINE','msg_1df2da1f2001SHpRuRMq7toR6y','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745674283,1794745674286,'{"type":"text","text":"\"Find the way out of the maze.\""}');
INSERT INTO "part" VALUES('prt_1df2dae6a0016kHlpdvdZtN2fV','msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745675371,1794745675374,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2dae72001yCOPRMHonmb5u4','msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745675378,1794745675497,'{"type":"text","text":"I look at both.","time":{"start":1794745675378,"end":1794745675490}}');
INSERT INTO "part" VALUES('prt_1df2dae7a001H4uwxmPInhKNGR','msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745675386,1794745676121,'{"type":"tool","tool":"bash","callID":"call_maze000","state":{"status":"completed","input":{"command":"sleep 0.2; echo three steps","description":"Look"},"output":"three steps\n","metadata":{"output":"three steps\n","exit":0,"truncated":false},"title":"sleep 0.2; echo three steps","time":{"start":1794745675457,"end":1794745676120}}}');
INSERT INTO "part" VALUES('prt_1df2daec9001GZ7RQ8rj6v7WVC','msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745675465,1794745675915,'{"type":"tool","tool":"read","callID":"call_maze001","state":{"status":"completed","input":{"filePath":"/tmp/maze/notes.txt"},"output":"<path>/tmp/maze/notes.txt</path>\n<type>file</type>\n<content>\n1: The door is on the left.\n2: The key is red.\n\n(End of file - total 2 lines)\n</content>","metadata":{"preview":"The door is on the left.\nThe key is red.","truncated":false,"loaded":[],"display":{"type":"file","path":"/tmp/maze/notes.txt","text":"The door is on the left.\nThe key is red.","lineStart":1,"lineEnd":2,"totalLines":2,"truncated":false}},"title":"tmp/maze/notes.txt","time":{"start":1794745675485,"end":1794745675914}}}');
INSERT INTO "part" VALUES('prt_1df2db15c001AYYDUaR90X3qbo','msg_1df2daa46001Ey0IoXWGUTRhQi','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676124,1794745676125,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2351,"input":311,"output":40,"reasoning":0,"cache":{"write":0,"read":2000}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2db252001abPoMTEzIztOU2','msg_1df2db18a001C30S1J7hOzy7Zx','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676371,1794745676372,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2db256001YKxiEeVbW9Hjqg','msg_1df2db18a001C30S1J7hOzy7Zx','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676374,1794745676964,'{"type":"tool","tool":"task","callID":"call_maze020","state":{"status":"completed","input":{"description":"Count","prompt":"Count the doors.","subagent_type":"general"},"output":"<task id=\"ses_e20d24da3ffewIYyG9w5N4Qm3D\" state=\"completed\">\n<task_result>\nTwo doors.\n</task_result>\n</task>","metadata":{"parentSessionId":"ses_e20d25ee2ffeSct3XiDHKciZaR","sessionId":"ses_e20d24da3ffewIYyG9w5N4Qm3D","model":{"modelID":"gpt-5","providerID":"maze"},"truncated":false},"title":"Count","time":{"start":1794745676385,"end":1794745676963}}}');
INSERT INTO "part" VALUES('prt_1df2db26b001xGd1hElZUEIW1L','msg_1df2db266001AkTi2R3Ya3qdEv','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676398,1794745676399,'{"type":"text","text":"Count the doors."}');
INSERT INTO "part" VALUES('prt_1df2db36f0015mkuvXicNbGBBI','msg_1df2db2850010NKILVDV6g5FXX','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676655,1794745676657,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2db372001a7dQc8gxX0nQ2g','msg_1df2db2850010NKILVDV6g5FXX','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676658,1794745676696,'{"type":"tool","tool":"bash","callID":"call_maze030","state":{"status":"completed","input":{"command":"echo two doors","description":"Look"},"output":"two doors\n","metadata":{"output":"two doors\n","exit":0,"truncated":false},"title":"echo two doors","time":{"start":1794745676665,"end":1794745676695}}}');
INSERT INTO "part" VALUES('prt_1df2db399001iK6g2fipCy3qcn','msg_1df2db2850010NKILVDV6g5FXX','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676697,1794745676698,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2666,"input":317,"output":49,"reasoning":0,"cache":{"write":0,"read":2300}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2db48e001tnTUgKl5Kcv97D','msg_1df2db39f001GMrYWrG2GPcWeJ','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676942,1794745676944,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2db491001q0ti6SxxFEo65A','msg_1df2db39f001GMrYWrG2GPcWeJ','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676945,1794745676949,'{"type":"text","text":"Two doors.","time":{"start":1794745676945,"end":1794745676948}}');
INSERT INTO "part" VALUES('prt_1df2db496001G63pEWkvubGh7a','msg_1df2db39f001GMrYWrG2GPcWeJ','ses_e20d24da3ffewIYyG9w5N4Qm3D',1794745676950,1794745676951,'{"reason":"stop","type":"step-finish","tokens":{"total":2771,"input":319,"output":52,"reasoning":0,"cache":{"write":0,"read":2400}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2db4a5001wL3jBw1Rn5jLI2','msg_1df2db18a001C30S1J7hOzy7Zx','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745676965,1794745676966,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2561,"input":315,"output":46,"reasoning":0,"cache":{"write":0,"read":2200}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2db58c001ipTb5Py6pqJJQZ','msg_1df2db4ae001wtnNFUvXhZCCDO','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677196,1794745677198,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2db58f001a0atXr9yzPDTpX','msg_1df2db4ae001wtnNFUvXhZCCDO','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677200,1794745677269,'{"type":"tool","tool":"bash","callID":"call_maze050","state":{"status":"completed","input":{"command":"echo out; false","description":"Look"},"output":"out\n","metadata":{"output":"out\n","exit":1,"truncated":false},"title":"echo out; false","time":{"start":1794745677205,"end":1794745677267}}}');
INSERT INTO "part" VALUES('prt_1df2db5d6001w65yEZV1ubtPGt','msg_1df2db4ae001wtnNFUvXhZCCDO','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677270,1794745677275,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":2876,"input":321,"output":55,"reasoning":0,"cache":{"write":0,"read":2500}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2db71a001TQV6BP8i1EFfPN','msg_1df2db5e2001pPHaFnKnW8NuAR','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677594,1794745677598,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2db731001XMFt1Kg3m6cHcf','msg_1df2db5e2001pPHaFnKnW8NuAR','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677617,1794745677653,'{"type":"text","text":"The way is found.","time":{"start":1794745677617,"end":1794745677652}}');
INSERT INTO "part" VALUES('prt_1df2db75a001PSRG7OAGq8VOSQ','msg_1df2db5e2001pPHaFnKnW8NuAR','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745677658,1794745677662,'{"reason":"stop","type":"step-finish","tokens":{"total":2981,"input":323,"output":58,"reasoning":0,"cache":{"write":0,"read":2600}},"cost":0}');
INSERT INTO "part" VALUES('prt_1df2dcf6200112WQyJfI4fcKKX','msg_1df2dcf5d001ar0kg8TEZGnIwd','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745686128,1794745686130,'{"type":"text","text":"\"And back again.\""}');
INSERT INTO "part" VALUES('prt_1df2ddbab001g2JTUsogPEpRW1','msg_1df2dd885001tBm1s54TmmIOXC','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745686956,1794745686957,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1df2ddbb4001EiFNLDlzzHJMLb','msg_1df2dd885001tBm1s54TmmIOXC','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745686964,1794745686975,'{"type":"text","text":"It is the same way.","time":{"start":1794745686964,"end":1794745686973}}');
INSERT INTO "part" VALUES('prt_1df2ddbc600188s4VkED6O3Kfh','msg_1df2dd885001tBm1s54TmmIOXC','ses_e20d25ee2ffeSct3XiDHKciZaR',1794745686982,1794745686987,'{"reason":"stop","type":"step-finish","tokens":{"total":3086,"input":325,"output":61,"reasoning":0,"cache":{"write":0,"read":2700}},"cost":0}');
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
INSERT INTO "session" VALUES('ses_e20d25ee2ffeSct3XiDHKciZaR','global',NULL,NULL,'brave-planet','/tmp/maze','tmp/maze','Fine.','1.18.33',NULL,0,0,0,NULL,NULL,0.0,1595,260,0,12000,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"gpt-5","providerID":"maze","variant":"default"}',1794745671965,1794745687054,NULL,NULL);
INSERT INTO "session" VALUES('ses_e20d24da3ffewIYyG9w5N4Qm3D','global',NULL,'ses_e20d25ee2ffeSct3XiDHKciZaR','gentle-meadow','/tmp/maze','tmp/maze','Count (@general subagent)','1.18.33',NULL,0,0,0,NULL,NULL,0.0,636,101,0,4700,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"},{"permission":"task","pattern":"*","action":"deny"}]','general','{"id":"gpt-5","providerID":"maze","variant":"default"}',1794745676380,1794745676986,NULL,NULL);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `part_session_idx` ON `part` (`session_id`);
CREATE INDEX `session_project_idx` ON `session` (`project_id`);
CREATE INDEX `session_workspace_idx` ON `session` (`workspace_id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
COMMIT;
